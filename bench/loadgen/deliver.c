/* deliver: messages sent at a steady rate, and a consumer that waits for them with long polling.
 *
 * The latency of a message runs from when it was due, by the rate, to when the consumer has it: a generator or server
 * that falls behind shows it. Sender and consumer are two connections of this process, with one clock. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "load.h"

#define SUSPEND_MS 15000
#define OPAQUE_FIRST 1000000000L
#define CODE_BUSY 2
#define CODE_TOPIC_NOT_THERE 17 /* until the first message has made it */
#define CODE_NOT_FOUND 19
#define CODE_RETRY 20

typedef struct {
    const Options *options;
    Link sender, consumer;
    uint64_t next, end, acknowledged, busy;
    uint64_t began_ns;
    int64_t offsets[QUEUES_MAX];
    Samples sends, deliveries;
    uint64_t *due_ns;    /* of each message of the run */
    uint8_t *delivered;  /* each one once */
    uint64_t delivered_count;
} Delivery;

static void ask(Delivery *delivery, long queue) {
    pull_put(&delivery->consumer.out, delivery->options, delivery->options->topic, queue, delivery->offsets[queue],
             queue, SUSPEND_MS);
    link_touch(&delivery->consumer);
}

static void send_one(Delivery *delivery, uint64_t at) {
    uint64_t number = (uint64_t)delivery->options->first + at;
    ROCKETMQ_WIRE.put(&delivery->sender, delivery->options, number, OPAQUE_FIRST + (long)at);
    link_touch(&delivery->sender);
}

static size_t take_acknowledgements(Link *link, const uint8_t *data, size_t bytes) {
    Delivery *delivery = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    while ((frame = answer_read(data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        uint64_t at = (uint64_t)(answer.opaque - OPAQUE_FIRST);
        if (at >= delivery->next) fail("an answer to opaque %ld, which was not asked", answer.opaque);
        if (answer.code == CODE_BUSY) {
            delivery->busy++;
            send_one(delivery, at);
            continue;
        }
        if (answer.code) fail("message %llu: the answer has code %ld", (unsigned long long)at, answer.code);
        samples_add(&delivery->sends, now_ns() - delivery->due_ns[at]);
        delivery->acknowledged++;
    }
    return taken;
}

static void take_record(Delivery *delivery, long queue, const Record *record) {
    if (record->queue_id != queue || record->queue_offset != delivery->offsets[queue])
        fail("queue %ld, offset %lld was asked; offset %lld came", queue, (long long)delivery->offsets[queue],
             (long long)record->queue_offset);
    delivery->offsets[queue]++;
    uint64_t at = read_digits(record->body, NUMBER_DIGITS) - (uint64_t)delivery->options->first;
    if (at >= delivery->next || delivery->delivered[at]) fail("message %llu came twice", (unsigned long long)at);
    delivery->delivered[at] = 1;
    delivery->delivered_count++;
    samples_add(&delivery->deliveries, now_ns() - delivery->due_ns[at]);
}

static size_t take_messages(Link *link, const uint8_t *data, size_t bytes) {
    Delivery *delivery = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    Record record;
    while ((frame = answer_read(data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (!(answer.flag & 1)) continue;
        long queue = answer.opaque;
        if (queue >= delivery->options->queues) fail("an answer to opaque %ld, which was not asked", queue);
        bool early = answer.code == CODE_TOPIC_NOT_THERE && delivery->delivered_count == 0;
        if (answer.code && answer.code != CODE_NOT_FOUND && answer.code != CODE_RETRY && !early)
            fail("a pull of queue %ld: the answer has code %ld", queue, answer.code);
        if (answer.code == 0)
            for (size_t at = 0; at < answer.body_bytes;) {
                record_read(answer.body, answer.body_bytes, &at, &record);
                take_record(delivery, queue, &record);
            }
        ask(delivery, queue);
    }
    return taken;
}

static uint64_t due_of(const Delivery *delivery, uint64_t at) {
    return delivery->began_ns + at * 1000000000u / (uint64_t)delivery->options->rate;
}

/* Every message that is due by now. */
static void send_due(Delivery *delivery) {
    uint64_t now = now_ns();
    while (delivery->next < delivery->end) {
        uint64_t due = due_of(delivery, delivery->next);
        if (due > now) break;
        delivery->due_ns[delivery->next] = due;
        send_one(delivery, delivery->next++);
    }
}

static void deliver(Delivery *delivery, Loop *loop, uint64_t messages) {
    delivery->began_ns = now_ns() - delivery->next * 1000000000u / (uint64_t)delivery->options->rate;
    delivery->end = delivery->next + messages;
    send_due(delivery);
    while (delivery->delivered_count < delivery->end || delivery->acknowledged < delivery->end) {
        bool more = delivery->next < delivery->end;
        loop_turn_until(loop, more ? due_of(delivery, delivery->next) : now_ns() + 1000000000u);
        send_due(delivery);
    }
}

void run_deliver(const Options *options) {
    Delivery delivery = {.options = options};
    Loop loop;
    uint64_t all = (uint64_t)(options->warm_up + options->messages);
    if (options->topics != 1 || options->wire[0] != 'r') fail("deliver: one topic of RocketMQ's wire");
    delivery.due_ns = grab(all, sizeof(uint64_t));
    delivery.delivered = grab(all, 1);
    loop_open(&loop, options);
    ROCKETMQ_WIRE.prepare(options);
    link_open(&delivery.sender, &loop, options, take_acknowledgements, &delivery);
    link_open(&delivery.consumer, &loop, options, take_messages, &delivery);
    for (long queue = 0; queue < options->queues; queue++) ask(&delivery, queue);
    deliver(&delivery, &loop, (uint64_t)options->warm_up);
    delivery.sends.count = delivery.deliveries.count = 0;
    uint64_t cpu = cpu_ns(options->pid), began = now_ns();
    deliver(&delivery, &loop, (uint64_t)options->messages);
    double seconds = (double)(now_ns() - began) / 1e9, used = (double)(cpu_ns(options->pid) - cpu) / 1e3;
    printf("{\"messages\": %ld, \"rate\": %ld, \"seconds\": %.6f, \"server_cpu_us\": %.3f, \"busy\": %llu, ",
           options->messages, options->rate, seconds, used / (double)options->messages,
           (unsigned long long)delivery.busy);
    samples_print(&delivery.sends, "send");
    printf(", ");
    samples_print(&delivery.deliveries, "delivery");
    printf("}\n");
    link_close(&delivery.sender);
    link_close(&delivery.consumer);
    free_all(delivery.due_ns);
    free_all(delivery.delivered);
    free_all(delivery.sends.values);
    free_all(delivery.deliveries.values);
    loop_close(&loop);
}
