/* pull: everything in the queues from offset 0 on, one pull in flight for each queue, as consumers do.
 *
 * Every record is checked: its length, magic number, checksum, queue, and that queue offsets follow each other without
 * a gap. It ends when so many messages have come; --messages should be all there are. `answer` is a sum over all messages that does not depend on the order of queues. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define SUSPEND_MS 15000 /* as consumers ask: an answer comes when there is a message */
#define CODE_FOUND 0
#define CODE_NOT_FOUND 19
#define CODE_RETRY 20

typedef struct {
    Link *link;
    long topic, queue;
    int64_t offset;
    uint64_t asked_ns;
} Reader;

typedef struct {
    const Options *options;
    Reader *readers;
    long reader_count;
    Samples latencies;
    uint64_t messages, bytes, pulls, empty, answer;
} Reading;

static void ask(Reading *reading, Reader *reader) {
    char topic[NAME_MAX_BYTES];
    topic_name(topic, reading->options, reader->topic);
    reader->asked_ns = now_ns();
    pull_put(&reader->link->out, reading->options, topic, reader->queue, reader->offset, reader - reading->readers,
             SUSPEND_MS);
    link_touch(reader->link);
}

static void take_records(Reading *reading, Reader *reader, const Answer *answer) {
    Record record;
    for (size_t at = 0; at < answer->body_bytes;) {
        record_read(answer->body, answer->body_bytes, &at, &record);
        if (record.queue_id != reader->queue || record.queue_offset != reader->offset)
            fail("queue %ld, offset %lld was asked; queue %ld, offset %lld came", reader->queue,
                 (long long)reader->offset, record.queue_id, (long long)record.queue_offset);
        reader->offset++;
        reading->messages++;
        reading->answer += mix64(mix64((uint64_t)record.body_crc << 16 | (uint64_t)reader->queue) + record.body_bytes);
    }
    if (answer->next_begin != reader->offset)
        fail("queue %ld: records until %lld, next offset %lld", reader->queue, (long long)reader->offset,
             (long long)answer->next_begin);
    reading->bytes += answer->body_bytes;
}

static size_t take_answers(Link *link, const uint8_t *data, size_t bytes) {
    Reading *reading = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    while ((frame = answer_read(data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (!(answer.flag & 1)) continue;
        if (answer.opaque >= reading->reader_count) fail("an answer to opaque %ld, which was not asked", answer.opaque);
        Reader *reader = &reading->readers[answer.opaque];
        samples_add(&reading->latencies, now_ns() - reader->asked_ns);
        reading->pulls++;
        if (answer.code == CODE_FOUND) {
            take_records(reading, reader, &answer);
        } else if (answer.code == CODE_NOT_FOUND || answer.code == CODE_RETRY) {
            reading->empty++;
        } else {
            fail("a pull of queue %ld: the answer has code %ld", reader->queue, answer.code);
        }
        if (reading->messages < (uint64_t)reading->options->messages) ask(reading, reader);
    }
    return taken;
}

void run_pull(const Options *options) {
    Reading reading = {.options = options, .reader_count = options->topics * options->queues};
    Link *links = grab((size_t)options->connections, sizeof(Link));
    Loop loop;
    reading.readers = grab((size_t)reading.reader_count, sizeof(Reader));
    loop_open(&loop, options);
    for (long at = 0; at < options->connections; at++) link_open(&links[at], &loop, options, take_answers, &reading);
    uint64_t cpu = cpu_ns(options->pid), own = cpu_ns(getpid()), began = now_ns();
    for (long at = 0; at < reading.reader_count; at++) {
        Reader *reader = &reading.readers[at];
        *reader = (Reader){.link = &links[at % options->connections], .topic = at / options->queues};
        reader->queue = at % options->queues;
        ask(&reading, reader);
    }
    while (reading.messages < (uint64_t)options->messages) loop_turn(&loop, 1000);
    double seconds = (double)(now_ns() - began) / 1e9, messages = (double)reading.messages;
    double used = (double)(cpu_ns(options->pid) - cpu) / 1e3, own_cpu = (double)(cpu_ns(getpid()) - own) / 1e3;
    printf("{\"messages\": %llu, \"bytes\": %llu, \"pulls\": %llu, \"empty\": %llu, \"seconds\": %.6f, "
           "\"per_second\": %.1f, \"server_cpu_us\": %.3f, \"client_cpu_us\": %.3f, \"answer\": \"%016llx\", ",
           (unsigned long long)reading.messages, (unsigned long long)reading.bytes, (unsigned long long)reading.pulls,
           (unsigned long long)reading.empty, seconds, messages / seconds, used / messages, own_cpu / messages,
           (unsigned long long)reading.answer);
    samples_print(&reading.latencies, "latency");
    printf("}\n");
    for (long at = 0; at < options->connections; at++) link_close(&links[at]);
    free_all(links);
    free_all(reading.readers);
    free_all(reading.latencies.values);
    loop_close(&loop);
}
