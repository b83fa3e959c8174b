/* The wires of the peers: XADD of Redis Streams, and a published message of NATS JetStream with its acknowledgement.
 * Each carries the same body, and the key beside it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define LINE_MAX 512
#define KEY_BYTES 18 /* order- and twelve digits */
#define NATS_GREETING "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\nSUB _INBOX.%d.* 1\r\n"

/* Bytes of the line at the start, its end of line included; 0: not complete. */
static size_t line_bytes(const uint8_t *data, size_t bytes) {
    const uint8_t *end = memchr(data, '\n', bytes < LINE_MAX ? bytes : LINE_MAX);
    if (!end && bytes >= LINE_MAX) fail("a line of more than %d bytes", LINE_MAX);
    return end ? (size_t)(end - data) + 1 : 0;
}

static void redis_put(Link *link, const Options *options, uint64_t number, long opaque) {
    char topic[NAME_MAX_BYTES], head[LINE_MAX];
    (void)opaque;
    topic_name(topic, options, topic_of(options, number));
    int bytes = snprintf(head, sizeof head,
                         "*7\r\n$4\r\nXADD\r\n$%zu\r\n%s\r\n$1\r\n*\r\n$1\r\nk\r\n$%d\r\norder-%012llu\r\n$1\r\nb\r\n$%ld\r\n",
                         strlen(topic), topic, KEY_BYTES, (unsigned long long)number, options->body);
    uint8_t *at = buffer_room(&link->out, (size_t)bytes + (size_t)options->body + 2);
    memcpy(at, head, (size_t)bytes);
    body_put(at + bytes, options, number);
    memcpy(at + bytes + options->body, "\r\n", 2);
    buffer_wrote(&link->out, (size_t)bytes + (size_t)options->body + 2);
}

static size_t redis_read(Link *link, const uint8_t *data, size_t bytes, Answer *answer) {
    (void)link;
    size_t line = line_bytes(data, bytes);
    if (!line) return 0;
    if (*data != '$') fail("Redis answered %.*s", (int)line, (const char *)data);
    size_t id = (size_t)strtoul((const char *)data + 1, NULL, 10);
    if (bytes < line + id + 2) return 0;
    *answer = (Answer){.code = 0, .opaque = 0, .queue_id = -1, .queue_offset = -1};
    return line + id + 2;
}

/* Every connection has subjects of its own for what is answered to it. */
static void nats_greet(Link *link) {
    char text[LINE_MAX];
    size_t bytes = (size_t)snprintf(text, sizeof text, NATS_GREETING, link->fd);
    memcpy(buffer_room(&link->out, bytes), text, bytes);
    buffer_wrote(&link->out, bytes);
}

static void nats_put(Link *link, const Options *options, uint64_t number, long opaque) {
    char topic[NAME_MAX_BYTES], head[LINE_MAX];
    topic_name(topic, options, topic_of(options, number));
    size_t headers = strlen("NATS/1.0\r\nKey: \r\n\r\n") + KEY_BYTES;
    int bytes = snprintf(head, sizeof head, "HPUB %s _INBOX.%d.%ld %zu %zu\r\nNATS/1.0\r\nKey: order-%012llu\r\n\r\n",
                         topic, link->fd, opaque, headers, headers + (size_t)options->body, (unsigned long long)number);
    uint8_t *at = buffer_room(&link->out, (size_t)bytes + (size_t)options->body + 2);
    memcpy(at, head, (size_t)bytes);
    body_put(at + bytes, options, number);
    memcpy(at + bytes + options->body, "\r\n", 2);
    buffer_wrote(&link->out, (size_t)bytes + (size_t)options->body + 2);
}

/* MSG <subject> <sid> <bytes>, then {"stream":"bench", "seq":17} */
static size_t nats_read(Link *link, const uint8_t *data, size_t bytes, Answer *answer) {
    size_t line = line_bytes(data, bytes);
    if (!line) return 0;
    *answer = (Answer){.code = 0, .opaque = -1, .queue_id = -1, .queue_offset = -1};
    if (!strncmp((const char *)data, "PING", 4)) {
        memcpy(buffer_room(&link->out, 6), "PONG\r\n", 6);
        buffer_wrote(&link->out, 6);
        link_touch(link);
        return line;
    }
    if (!strncmp((const char *)data, "INFO", 4) || *data == '+') return line;
    if (strncmp((const char *)data, "MSG _INBOX.", 11)) fail("NATS answered %.*s", (int)line, (const char *)data);
    char *after;
    strtol((const char *)data + 11, &after, 10);
    long opaque = strtol(after + 1, &after, 10);
    strtol(after, &after, 10);
    size_t body = (size_t)strtoul(after, NULL, 10);
    if (bytes < line + body + 2) return 0;
    const char *text = (const char *)data + line;
    if (!memmem(text, body, "\"seq\":", 6)) fail("JetStream answered %.*s", (int)body, text);
    answer->opaque = opaque;
    return line + body + 2;
}

static void peer_prepare(const Options *options) { bodies_make(options); }
static void no_greeting(Link *link) { (void)link; }

const Wire REDIS_WIRE = {"redis", true, peer_prepare, no_greeting, redis_put, redis_read};
const Wire NATS_WIRE = {"nats", false, peer_prepare, nats_greet, nats_put, nats_read};
