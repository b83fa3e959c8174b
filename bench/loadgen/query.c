/* query: messages looked up by their key, one at a time; each answer must hold the one message with that key.
 *
 * The messages are those of a `send` before it with the same --first and --messages; keys are taken from all over the
 * range, in an order that repeats. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "load.h"

#define HEADER_MAX 1024
#define STEP 7919u /* prime: neighbours in time are not neighbours in the log */

typedef struct {
    const Options *options;
    Link link;
    uint64_t asked, number, asked_ns;
    Samples latencies;
} Query;

static void ask(Query *query) {
    char topic[NAME_MAX_BYTES], header[HEADER_MAX];
    const Options *options = query->options;
    query->number = (uint64_t)options->first + query->asked * STEP % (uint64_t)options->messages;
    topic_name(topic, options, topic_of(options, query->number));
    int bytes = snprintf(header, sizeof header,
                         "{\"code\":12,\"extFields\":{\"_UNIQUE_KEY_QUERY\":\"false\",\"beginTimestamp\":\"0\","
                         "\"endTimestamp\":\"%llu\",\"key\":\"order-%012llu\",\"maxNum\":\"32\",\"topic\":\"%s\"},\"flag\":0,"
                         "\"language\":\"JAVA\",\"opaque\":%llu,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                         (unsigned long long)wall_ms() + 3600000u, (unsigned long long)query->number, topic,
                         (unsigned long long)query->asked);
    query->asked_ns = now_ns();
    request_put(&query->link.out, header, (size_t)bytes);
    link_touch(&query->link);
}

static size_t take_answer(Link *link, const uint8_t *data, size_t bytes) {
    Query *query = link->owner;
    Answer answer;
    Record record;
    size_t frame = answer_read(data, bytes, &answer), at = 0;
    if (!frame) return 0;
    samples_add(&query->latencies, now_ns() - query->asked_ns);
    if (answer.code || answer.opaque != (long)query->asked)
        fail("key order-%012llu: the answer has code %ld", (unsigned long long)query->number, answer.code);
    record_read(answer.body, answer.body_bytes, &at, &record);
    if (at != answer.body_bytes || read_digits(record.body, NUMBER_DIGITS) != query->number)
        fail("key order-%012llu: another message, or more than one", (unsigned long long)query->number);
    query->asked++;
    return frame;
}

void run_query(const Options *options) {
    Query query = {.options = options};
    Loop loop;
    loop_open(&loop, options);
    link_open(&query.link, &loop, options, take_answer, &query);
    uint64_t all = (uint64_t)(options->warm_up + options->rate), cpu = 0, began = 0;
    for (uint64_t at = 0; at < all; at++) {
        if (at == (uint64_t)options->warm_up) {
            query.latencies.count = 0;
            cpu = cpu_ns(options->pid);
            began = now_ns();
        }
        ask(&query);
        while (query.asked == at) loop_turn(&loop, 1000);
    }
    double seconds = (double)(now_ns() - began) / 1e9, used = (double)(cpu_ns(options->pid) - cpu) / 1e3;
    printf("{\"queries\": %ld, \"seconds\": %.6f, \"per_second\": %.1f, \"server_cpu_us\": %.3f, ", options->rate, seconds,
           (double)options->rate / seconds, used / (double)options->rate);
    samples_print(&query.latencies, "latency");
    printf("}\n");
    link_close(&query.link);
    free_all(query.latencies.values);
    loop_close(&loop);
}
