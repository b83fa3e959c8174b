/* transact: so many connections, each with so many transactions in flight; one is a half message, and its commit.
 *
 * The half message is sent, and when it is acknowledged its transaction is committed: END_TRANSACTION as a request that is
 * answered. A Java producer sends it without waiting for an answer; with one, the end of each transaction is seen. Codes and
 * opaques of both answers are checked. An answer "busy" (code 2) to a half message is counted, and it is sent again. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define CODE_BUSY 2
#define OPAQUE_FIRST 1000000000L
#define OPAQUE_RANGE 1000000000L
#define HEADER_MAX 1024
#define PLACE_DIGITS 16 /* an offset message id ends with the place in the log */

typedef struct {
    uint64_t began_ns, number;
    long opaque; /* -1: free */
    bool is_ending;
} Slot;

struct Campaign;

typedef struct {
    Link link;
    struct Campaign *campaign;
    Slot *slots;
    uint64_t turns;
} Sender;

typedef struct Campaign {
    const Options *options;
    Sender *senders;
    uint64_t next, end, done, busy;
    Samples latencies;
} Campaign;

static long next_opaque(Sender *sender, long slot) {
    long window = sender->campaign->options->window;
    return OPAQUE_FIRST + (long)(sender->turns++ * (uint64_t)window % OPAQUE_RANGE) / window * window + slot;
}

static void put_half(Sender *sender, long slot) {
    Slot *place = &sender->slots[slot];
    place->opaque = next_opaque(sender, slot);
    place->is_ending = false;
    ROCKETMQ_WIRE.put(&sender->link, sender->campaign->options, place->number, place->opaque);
    link_touch(&sender->link);
}

static void put_commit(Sender *sender, long slot, const Answer *answer) {
    Slot *place = &sender->slots[slot];
    if (answer->queue_offset < 0 || answer->msg_id_bytes < PLACE_DIGITS)
        fail("message %llu: the answer has no place", (unsigned long long)place->number);
    char digits[PLACE_DIGITS + 1] = {0}, header[HEADER_MAX];
    memcpy(digits, answer->msg_id + answer->msg_id_bytes - PLACE_DIGITS, PLACE_DIGITS);
    place->opaque = next_opaque(sender, slot);
    place->is_ending = true;
    int bytes = snprintf(header, sizeof header,
                         "{\"code\":37,\"extFields\":{\"commitLogOffset\":\"%lld\",\"commitOrRollback\":\"8\","
                         "\"fromTransactionCheck\":\"false\",\"msgId\":\"7F0000010001639CFE2B%012llu\","
                         "\"producerGroup\":\"bench_producer\",\"tranStateTableOffset\":\"%lld\","
                         "\"transactionId\":\"7F0000010001639CFE2B%012llu\"},\"flag\":0,\"language\":\"JAVA\","
                         "\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                         strtoll(digits, NULL, 16), (unsigned long long)place->number, (long long)answer->queue_offset,
                         (unsigned long long)place->number, place->opaque);
    if (bytes < 0 || (size_t)bytes >= sizeof header) fail("a header of more than %d bytes", HEADER_MAX);
    request_put(&sender->link.out, header, (size_t)bytes);
    link_touch(&sender->link);
}

static void begin_more(Sender *sender) {
    Campaign *campaign = sender->campaign;
    for (long slot = 0; slot < campaign->options->window && campaign->next < campaign->end; slot++) {
        if (sender->slots[slot].opaque >= 0) continue;
        sender->slots[slot].number = campaign->next++;
        sender->slots[slot].began_ns = now_ns();
        put_half(sender, slot);
    }
}

static void take_answer(Sender *sender, const Answer *answer) {
    Campaign *campaign = sender->campaign;
    long slot = (answer->opaque - OPAQUE_FIRST) % campaign->options->window;
    if (slot < 0 || sender->slots[slot].opaque != answer->opaque)
        fail("an answer to opaque %ld, which was not asked", answer->opaque);
    Slot *place = &sender->slots[slot];
    if (answer->code == CODE_BUSY && !place->is_ending) {
        campaign->busy++;
        put_half(sender, slot);
        return;
    }
    if (answer->code)
        fail("message %llu, %s: the answer has code %ld", (unsigned long long)place->number,
             place->is_ending ? "commit" : "half message", answer->code);
    if (!place->is_ending) {
        put_commit(sender, slot, answer);
        return;
    }
    samples_add(&campaign->latencies, now_ns() - place->began_ns);
    place->opaque = -1;
    campaign->done++;
}

static size_t take_answers(Link *link, const uint8_t *data, size_t bytes) {
    Sender *sender = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    while ((frame = ROCKETMQ_WIRE.read(link, data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (answer.opaque >= 0) take_answer(sender, &answer);
    }
    begin_more(sender);
    return taken;
}

static void run(Campaign *campaign, Loop *loop, long connections, uint64_t messages) {
    campaign->done = 0;
    campaign->end = campaign->next + messages;
    loop->heard_ns = now_ns();
    for (long at = 0; at < connections; at++) begin_more(&campaign->senders[at]);
    while (campaign->done < messages) loop_turn(loop, 1000);
}

static void open_senders(Campaign *campaign, Loop *loop) {
    const Options *options = campaign->options;
    campaign->senders = grab((size_t)options->connections, sizeof(Sender));
    for (long at = 0; at < options->connections; at++) {
        Sender *sender = &campaign->senders[at];
        link_open(&sender->link, loop, options, take_answers, sender);
        sender->campaign = campaign;
        sender->slots = grab((size_t)options->window, sizeof(Slot));
        for (long slot = 0; slot < options->window; slot++) sender->slots[slot].opaque = -1;
    }
}

static void close_senders(Campaign *campaign) {
    for (long at = 0; at < campaign->options->connections; at++) {
        link_close(&campaign->senders[at].link);
        free_all(campaign->senders[at].slots);
    }
    free_all(campaign->senders);
    free_all(campaign->latencies.values);
}

void run_transact(const Options *options) {
    Campaign campaign = {.options = options, .next = (uint64_t)options->first};
    Loop loop;
    loop_open(&loop, options);
    ROCKETMQ_WIRE.prepare(options);
    open_senders(&campaign, &loop);
    /* One connection makes the topic and its queues. */
    run(&campaign, &loop, 1, (uint64_t)(options->topics * options->queues));
    run(&campaign, &loop, options->connections, (uint64_t)options->warm_up);
    rest(&loop, options->settle_ms);
    campaign.latencies.count = campaign.busy = 0;
    uint64_t cpu = cpu_ns(options->pid), began = now_ns();
    run(&campaign, &loop, options->connections, (uint64_t)options->messages);
    uint64_t ended = now_ns();
    rest(&loop, options->settle_ms); /* what the server does after its last answer counts as well */
    uint64_t used = cpu_ns(options->pid) - cpu;
    double seconds = (double)(ended - began) / 1e9, messages = (double)options->messages;
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"per_second\": %.1f, \"server_cpu_us\": %.3f, ", options->messages,
           seconds, messages / seconds, (double)used / 1e3 / messages);
    samples_print(&campaign.latencies, "latency");
    printf(", \"busy\": %llu, \"next_number\": %llu}\n", (unsigned long long)campaign.busy,
           (unsigned long long)campaign.next);
    close_senders(&campaign);
    loop_close(&loop);
}
