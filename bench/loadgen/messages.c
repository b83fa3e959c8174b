/* What is sent: message number n has a body and a key of its own, and a topic and a queue that follow from n.
 *
 * The frame of RocketMQ's SEND_MESSAGE_V2 is the one its Java client sends, with a JSON header and the properties KEYS,
 * UNIQ_KEY, WAIT and TAGS; of a half message those of a transaction as well. All numbers in it have a fixed width, so a
 * frame is a copy of a template with the numbers written over it. That happens when the message is sent, inside the
 * measured time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "load.h"

#define PATTERNS 256
#define TEMPLATE_MAX 2048
#define FRAME_HEAD 8u
#define OPAQUE_MARK "1999999999"
#define NUMBER_MARK "888888888888"
#define TIME_MARK "7777777777777"
#define TIME_DIGITS 13
#define OPAQUE_DIGITS 10
#define TOPIC_DIGITS 4
#define SYS_FLAG_PREPARED 4

static uint8_t *patterns;

void topic_name(char *text, const Options *options, long topic) {
    if (options->topics == 1) {
        snprintf(text, NAME_MAX_BYTES, "%s", options->topic);
    } else {
        snprintf(text, NAME_MAX_BYTES, "%s-%04ld", options->topic, topic);
    }
}

long topic_of(const Options *options, uint64_t number) { return (long)(number % (uint64_t)options->topics); }

long queue_of(const Options *options, uint64_t number) {
    return (long)(number / (uint64_t)options->topics % (uint64_t)options->queues);
}

/* The bytes of bench/workload.py's bodies; the number written over them makes each one different. */
void bodies_make(const Options *options) {
    size_t bytes = (size_t)options->body;
    free_all(patterns);
    patterns = grab(PATTERNS, bytes);
    for (size_t one = 0; one < PATTERNS; one++)
        for (size_t at = 0; at < bytes; at++) patterns[one * bytes + at] = (uint8_t)(at * 31 + one);
}

void body_put(uint8_t *at, const Options *options, uint64_t number) {
    size_t bytes = (size_t)options->body;
    memcpy(at, patterns + number % PATTERNS * bytes, bytes);
    put_digits(at, NUMBER_DIGITS, number);
    at[NUMBER_DIGITS] = ':';
}

static struct {
    char text[TEMPLATE_MAX];
    size_t bytes, opaque, key, unique, born, queue, topic;
} header;

static size_t place_of(const char *from, const char *mark) {
    const char *found = strstr(from, mark);
    if (!found) fail("the template lacks %s", mark);
    return (size_t)(found - header.text);
}

static void rocketmq_prepare(const Options *options) {
    char topic[NAME_MAX_BYTES];
    topic_name(topic, options, 0);
    bool is_half = !strcmp(options->mode, "transact");
    int bytes = snprintf(header.text, sizeof header.text,
                         "{\"code\":310,\"extFields\":{\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%ld\","
                         "\"e\":\"0\",\"f\":\"%d\",\"g\":\"" TIME_MARK "\",\"h\":\"0\",\"i\":\"KEYS\\u0001order-" NUMBER_MARK
                         "\\u0002UNIQ_KEY\\u00017F0000010001639CFE2B" NUMBER_MARK
                         "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001paid%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},"
                         "\"flag\":0,\"language\":\"JAVA\",\"opaque\":" OPAQUE_MARK
                         ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                         topic, options->queues, is_half ? SYS_FLAG_PREPARED : 0,
                         is_half ? "\\u0002TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench_producer" : "");
    if (bytes < 0 || (size_t)bytes >= sizeof header.text) fail("the topic %s is too long", topic);
    header.bytes = (size_t)bytes;
    header.opaque = place_of(header.text, OPAQUE_MARK);
    header.key = place_of(header.text, "order-" NUMBER_MARK) + strlen("order-");
    header.unique = place_of(header.text + header.key + 1, NUMBER_MARK);
    header.born = place_of(header.text, TIME_MARK);
    header.queue = place_of(header.text, "\"e\":\"0") + strlen("\"e\":\"");
    header.topic = place_of(header.text, "\"b\":\"") + strlen("\"b\":\"") + strlen(topic) - TOPIC_DIGITS;
    bodies_make(options);
}

static void rocketmq_put(Link *link, const Options *options, uint64_t number, long opaque) {
    size_t body = (size_t)options->body, frame = FRAME_HEAD + header.bytes + body;
    uint8_t *at = buffer_room(&link->out, frame), *text = at + FRAME_HEAD;
    store_u32(at, (uint32_t)(frame - 4));
    store_u32(at + 4, (uint32_t)header.bytes);
    memcpy(text, header.text, header.bytes);
    put_digits(text + header.opaque, OPAQUE_DIGITS, (uint64_t)opaque);
    put_digits(text + header.key, NUMBER_DIGITS, number);
    put_digits(text + header.unique, NUMBER_DIGITS, number);
    put_digits(text + header.born, TIME_DIGITS, wall_ms());
    put_digits(text + header.queue, 1, (uint64_t)queue_of(options, number));
    if (options->topics > 1) put_digits(text + header.topic, TOPIC_DIGITS, (uint64_t)topic_of(options, number));
    body_put(text + header.bytes, options, number);
    buffer_wrote(&link->out, frame);
}

static size_t rocketmq_read(Link *link, const uint8_t *data, size_t bytes, Answer *answer) {
    (void)link;
    size_t frame = answer_read(data, bytes, answer);
    if (frame && !(answer->flag & 1)) answer->opaque = -1; /* a request of the broker's */
    return frame;
}

static void no_greeting(Link *link) { (void)link; }

const Wire ROCKETMQ_WIRE = {"rocketmq", false, rocketmq_prepare, no_greeting, rocketmq_put, rocketmq_read};

const Wire *wire_named(const char *name) {
    const Wire *known[] = {&ROCKETMQ_WIRE, &REDIS_WIRE, &NATS_WIRE};
    for (size_t at = 0; at < sizeof known / sizeof *known; at++)
        if (!strcmp(known[at]->name, name)) return known[at];
    fail("--wire %s: one of rocketmq, redis, nats", name);
}
