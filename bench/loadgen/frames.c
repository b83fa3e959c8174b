/* RocketMQ's frames as far as a load generator needs them: headers of answers, records, and requests without a body. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

#define FRAME_HEAD 8u
#define FRAME_BYTES_MAX (32u * 1024u * 1024u)
#define RECORD_MAGIC 0xDAA320A7u
#define SYS_FLAG_IPV6 0x30u
#define HEADER_MAX 2048
#define REMARK_SHOWN 200

uint32_t load_u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

uint64_t load_u64(const uint8_t *at) { return (uint64_t)load_u32(at) << 32 | load_u32(at + 4); }

void store_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

void put_digits(uint8_t *at, int digits, uint64_t value) {
    while (digits-- > 0) {
        at[digits] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

uint64_t read_digits(const uint8_t *at, int digits) {
    uint64_t value = 0;
    for (int place = 0; place < digits; place++) {
        if (at[place] < '0' || at[place] > '9') fail("a body that is not one of ours: no number at its beginning");
        value = value * 10 + (uint64_t)(at[place] - '0');
    }
    return value;
}

/* CRC-32 as zlib has it, eight bytes a step. */
uint32_t crc32_of(const uint8_t *data, size_t bytes) {
    static uint32_t table[8][256];
    if (!table[0][1]) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t sum = byte;
            for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
            table[0][byte] = sum;
        }
        for (uint32_t byte = 0; byte < 256; byte++)
            for (int step = 1; step < 8; step++)
                table[step][byte] = table[step - 1][byte] >> 8 ^ table[0][table[step - 1][byte] & 255];
    }
    uint32_t sum = 0xFFFFFFFFu;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint32_t low = sum ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        sum = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
    }
    while (bytes--) sum = sum >> 8 ^ table[0][(sum ^ *data++) & 255];
    return sum ^ 0xFFFFFFFFu;
}

static bool is_key(const char *key, size_t bytes, const char *name) {
    return bytes == strlen(name) && memcmp(key, name, bytes) == 0;
}

static void take_field(Answer *answer, const char *key, size_t key_bytes, const char *value) {
    switch (*key) {
        case 'c': if (is_key(key, key_bytes, "code")) answer->code = strtol(value, NULL, 10); break;
        case 'o': if (is_key(key, key_bytes, "opaque")) answer->opaque = strtol(value, NULL, 10); break;
        case 'f': if (is_key(key, key_bytes, "flag")) answer->flag = strtol(value, NULL, 10); break;
        case 'q':
            if (is_key(key, key_bytes, "queueId")) answer->queue_id = strtol(value, NULL, 10);
            if (is_key(key, key_bytes, "queueOffset")) answer->queue_offset = strtoll(value, NULL, 10);
            break;
        case 'n': if (is_key(key, key_bytes, "nextBeginOffset")) answer->next_begin = strtoll(value, NULL, 10); break;
        case 'm':
            if (is_key(key, key_bytes, "maxOffset")) answer->max_offset = strtoll(value, NULL, 10);
            if (is_key(key, key_bytes, "msgId")) {
                answer->msg_id = value;
                answer->msg_id_bytes = strcspn(value, "\"");
            }
            break;
        default: break;
    }
}

/* The end of the string that begins after `at`, a quote. */
static const char *string_end(const char *at, const char *end) {
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\') at++;
    if (at >= end) fail("a header that is no JSON");
    return at;
}

/* All pairs of name and value, those inside extFields as well: their names do not meet. */
static void read_header(const char *at, const char *end, Answer *answer) {
    while (at < end) {
        if (*at != '"') {
            at++;
            continue;
        }
        const char *key = at + 1, *close = string_end(at, end);
        at = close + 1;
        while (at < end && (*at == ' ' || *at == ':')) at++;
        if (at >= end) fail("a header that is no JSON");
        bool quoted = *at == '"';
        if (*at == '{') continue;
        take_field(answer, key, (size_t)(close - key), at + quoted);
        if (quoted) {
            at = string_end(at, end) + 1;
        } else {
            while (at < end && *at != ',' && *at != '}') at++;
        }
    }
}

size_t answer_read(const uint8_t *data, size_t bytes, Answer *answer) {
    if (bytes < FRAME_HEAD) return 0;
    size_t frame = (size_t)load_u32(data) + 4;
    uint32_t mark = load_u32(data + 4);
    size_t header = mark & 0xFFFFFFu;
    if (mark >> 24) fail("a header that is not JSON (kind %u)", mark >> 24);
    if (frame > FRAME_BYTES_MAX || header + FRAME_HEAD > frame) fail("a frame of %zu bytes, header %zu", frame, header);
    if (bytes < frame) return 0;
    *answer = (Answer){.code = -1, .opaque = -1, .flag = -1, .queue_id = -1, .queue_offset = -1, .next_begin = -1};
    read_header((const char *)data + FRAME_HEAD, (const char *)data + FRAME_HEAD + header, answer);
    if (answer->code < 0 || answer->opaque < 0 || answer->flag < 0)
        fail("a header without code, opaque and flag: %.*s", (int)header, (const char *)data + FRAME_HEAD);
    answer->body = data + FRAME_HEAD + header;
    answer->body_bytes = frame - FRAME_HEAD - header;
    return frame;
}

void record_read(const uint8_t *body, size_t bytes, size_t *at, Record *record) {
    const uint8_t *start = body + *at;
    size_t left = bytes - *at;
    if (left < 88) fail("a record of %zu bytes", left);
    size_t size = load_u32(start);
    if (size > left || size < 91) fail("a record says %zu bytes, %zu are there", size, left);
    if (load_u32(start + 4) != RECORD_MAGIC) fail("a record with the magic number %08x", load_u32(start + 4));
    if (load_u32(start + 36) & SYS_FLAG_IPV6) fail("a record with IPv6 hosts: give 127.0.0.1");
    record->queue_id = (long)load_u32(start + 12);
    record->queue_offset = (int64_t)load_u64(start + 20);
    record->body_bytes = load_u32(start + 84);
    record->body = start + 88;
    if (record->body_bytes > size - 91) fail("a record of %zu bytes has a body of %zu", size, record->body_bytes);
    record->body_crc = crc32_of(record->body, record->body_bytes) & 0x7FFFFFFFu;
    if (record->body_crc != load_u32(start + 8))
        fail("queue %ld offset %lld: the checksum of the body is wrong", record->queue_id,
             (long long)record->queue_offset);
    *at += size;
}

void request_put(Buffer *out, const char *header, size_t header_bytes) {
    uint8_t *at = buffer_room(out, FRAME_HEAD + header_bytes);
    store_u32(at, (uint32_t)(4 + header_bytes));
    store_u32(at + 4, (uint32_t)header_bytes);
    memcpy(at + FRAME_HEAD, header, header_bytes);
    buffer_wrote(out, FRAME_HEAD + header_bytes);
}

/* As a push consumer of other languages sends it: the subscription is part of the request. */
void pull_put(Buffer *out, const Options *options, const char *topic, long queue, int64_t offset, long opaque,
              long suspend_ms) {
    char header[HEADER_MAX];
    int bytes = snprintf(header, sizeof header,
                         "{\"code\":11,\"extFields\":{\"commitOffset\":\"0\",\"consumerGroup\":\"bench_consumer\","
                         "\"expressionType\":\"TAG\",\"maxMsgNums\":\"%ld\",\"queueId\":\"%ld\",\"queueOffset\":\"%lld\","
                         "\"subVersion\":\"0\",\"subscription\":\"*\",\"suspendTimeoutMillis\":\"%ld\",\"sysFlag\":\"%d\","
                         "\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%ld,"
                         "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}",
                         options->batch, queue, (long long)offset, suspend_ms, suspend_ms ? 6 : 4, topic, opaque);
    if (bytes < 0 || (size_t)bytes >= sizeof header) fail("the topic %s is too long", topic);
    request_put(out, header, (size_t)bytes);
}
