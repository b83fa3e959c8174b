/* send: so many connections, each with so many messages in flight; every acknowledgement is checked.
 *
 * Checked are the code, the opaque (a request that waits for its answer), the queue, and at the end the queue offsets:
 * none twice, and none missing between the first and the last of a queue. An answer "busy" (code 2) is counted and the
 * message is sent again. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define CODE_BUSY 2
#define OPAQUE_FIRST 1000000000L
#define OPAQUE_RANGE 1000000000L
#define OFFSET_BITS 40

typedef struct {
    uint64_t sent_ns, number;
    long opaque; /* -1: free */
} Slot;

struct Campaign;

typedef struct {
    Link link;
    struct Campaign *campaign;
    Slot *slots;
    long *free;          /* slots that are free, the last one first */
    long free_count;
    long oldest, newest; /* of wires that acknowledge in order: the slots in flight are a ring */
    uint64_t turns;
} Sender;

typedef struct Campaign {
    const Options *options;
    const Wire *wire;
    Sender *senders;
    uint64_t next, end, done, busy;
    Samples latencies, offsets;
} Campaign;

static void send_number(Sender *sender, long slot, uint64_t number) {
    Campaign *campaign = sender->campaign;
    Slot *place = &sender->slots[slot];
    long window = campaign->options->window;
    place->opaque = OPAQUE_FIRST + (long)(sender->turns++ * (uint64_t)window % OPAQUE_RANGE) / window * window + slot;
    place->number = number;
    place->sent_ns = now_ns();
    campaign->wire->put(&sender->link, campaign->options, number, place->opaque);
    link_touch(&sender->link);
}

static void fill(Sender *sender) {
    Campaign *campaign = sender->campaign;
    while (sender->free_count && campaign->next < campaign->end) {
        long slot = sender->free[--sender->free_count];
        if (campaign->wire->in_order) slot = sender->newest++ % campaign->options->window;
        send_number(sender, slot, campaign->next++);
    }
}

static Slot *answered_slot(Sender *sender, const Answer *answer) {
    const Options *options = sender->campaign->options;
    if (sender->campaign->wire->in_order) return &sender->slots[sender->oldest++ % options->window];
    long slot = (answer->opaque - OPAQUE_FIRST) % options->window;
    if (slot < 0 || sender->slots[slot].opaque != answer->opaque)
        fail("an answer to opaque %ld, which was not asked", answer->opaque);
    return &sender->slots[slot];
}

static void check_answer(Campaign *campaign, const Slot *slot, const Answer *answer) {
    const Options *options = campaign->options;
    if (answer->code) fail("message %llu: the answer has code %ld", (unsigned long long)slot->number, answer->code);
    if (campaign->wire != &ROCKETMQ_WIRE) return;
    long queue = queue_of(options, slot->number);
    if (answer->queue_id != queue || answer->queue_offset < 0)
        fail("message %llu for queue %ld: the answer says queue %ld, offset %lld", (unsigned long long)slot->number,
             queue, answer->queue_id, (long long)answer->queue_offset);
    uint64_t place = (uint64_t)(topic_of(options, slot->number) * options->queues + queue);
    samples_add(&campaign->offsets, place << OFFSET_BITS | (uint64_t)answer->queue_offset);
}

static size_t take_answers(Link *link, const uint8_t *data, size_t bytes) {
    Sender *sender = link->owner;
    Campaign *campaign = sender->campaign;
    size_t taken = 0, frame;
    uint64_t at = now_ns();
    Answer answer;
    while ((frame = campaign->wire->read(link, data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (answer.opaque < 0) continue;
        Slot *slot = answered_slot(sender, &answer);
        if (answer.code == CODE_BUSY) {
            campaign->busy++;
            send_number(sender, slot - sender->slots, slot->number);
            continue;
        }
        check_answer(campaign, slot, &answer);
        samples_add(&campaign->latencies, at - slot->sent_ns);
        slot->opaque = -1;
        sender->free[sender->free_count++] = slot - sender->slots;
        campaign->done++;
    }
    fill(sender);
    return taken;
}

static void open_senders(Campaign *campaign, Loop *loop) {
    const Options *options = campaign->options;
    campaign->senders = grab((size_t)options->connections, sizeof(Sender));
    for (long at = 0; at < options->connections; at++) {
        Sender *sender = &campaign->senders[at];
        link_open(&sender->link, loop, options, take_answers, sender);
        sender->campaign = campaign;
        sender->slots = grab((size_t)options->window, sizeof(Slot));
        sender->free = grab((size_t)options->window, sizeof(long));
        for (long slot = options->window - 1; slot >= 0; slot--) {
            sender->slots[slot].opaque = -1;
            sender->free[sender->free_count++] = slot;
        }
        campaign->wire->greet(&sender->link);
        if (sender->link.out.end) link_touch(&sender->link);
    }
}

/* Sends so many messages and returns when all of them are acknowledged. */
static void run(Campaign *campaign, Loop *loop, long connections, uint64_t messages) {
    campaign->done = 0;
    campaign->end = campaign->next + messages;
    loop->heard_ns = now_ns();
    for (long at = 0; at < connections; at++) fill(&campaign->senders[at]);
    while (campaign->done < messages) loop_turn(loop, 1000);
}

/* Twice acknowledged offsets end the process; missing ones are counted: another client may have them. */
static uint64_t count_gaps(Samples *offsets) {
    uint64_t gaps = 0;
    samples_sort(offsets);
    for (size_t at = 1; at < offsets->count; at++) {
        uint64_t one = offsets->values[at - 1], next = offsets->values[at];
        if (one == next) fail("a queue offset was given to two messages: %llx", (unsigned long long)one);
        if (one >> OFFSET_BITS == next >> OFFSET_BITS) gaps += next - one - 1;
    }
    return gaps;
}

static void close_senders(Campaign *campaign) {
    for (long at = 0; at < campaign->options->connections; at++) {
        link_close(&campaign->senders[at].link);
        free_all(campaign->senders[at].slots);
        free_all(campaign->senders[at].free);
    }
    free_all(campaign->senders);
    free_all(campaign->latencies.values);
    free_all(campaign->offsets.values);
}

/* So that topics and queues are there: nothing is printed. */
void send_quietly(const Options *options) {
    Campaign campaign = {.options = options, .wire = wire_named(options->wire), .next = (uint64_t)options->first};
    Loop loop;
    loop_open(&loop, options);
    campaign.wire->prepare(options);
    open_senders(&campaign, &loop);
    run(&campaign, &loop, 1, (uint64_t)(options->topics * options->queues));
    close_senders(&campaign);
    loop_close(&loop);
}

void run_send(const Options *options) {
    Campaign campaign = {.options = options, .wire = wire_named(options->wire), .next = (uint64_t)options->first};
    Loop loop;
    loop_open(&loop, options);
    Held *held = options->held_pulls ? held_open(&loop, options) : NULL;
    campaign.wire->prepare(options);
    open_senders(&campaign, &loop);
    /* One connection makes the topics: RocketMQ makes a topic when its first message arrives. */
    if (options->create) run(&campaign, &loop, 1, (uint64_t)(options->topics * options->queues));
    run(&campaign, &loop, options->connections, (uint64_t)options->warm_up);
    rest(&loop, options->settle_ms);
    campaign.latencies.count = campaign.busy = 0;
    uint64_t cpu = cpu_ns(options->pid), own = cpu_ns(getpid()), began = now_ns();
    run(&campaign, &loop, options->connections, (uint64_t)options->messages);
    uint64_t ended = now_ns(), own_cpu = cpu_ns(getpid()) - own;
    rest(&loop, options->settle_ms); /* what the server does after its last answer counts as well */
    uint64_t used = cpu_ns(options->pid) - cpu;
    double seconds = (double)(ended - began) / 1e9, messages = (double)options->messages;
    printf("{\"messages\": %ld, \"seconds\": %.6f, \"per_second\": %.1f, \"server_cpu_us\": %.3f, \"client_cpu_us\": %.3f, ",
           options->messages, seconds, messages / seconds, (double)used / 1e3 / messages, (double)own_cpu / 1e3 / messages);
    samples_print(&campaign.latencies, "latency");
    printf(", \"busy\": %llu, \"gaps\": %llu, \"held_answered\": %ld, \"next_number\": %llu}\n",
           (unsigned long long)campaign.busy, (unsigned long long)count_gaps(&campaign.offsets),
           held ? held_answered(held) : 0, (unsigned long long)campaign.next);
    if (held) held_close(held);
    close_senders(&campaign);
    loop_close(&loop);
}
