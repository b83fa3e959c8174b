/* A load generator for brokers that speak RocketMQ's protocol: one mode, one JSON line.
 *
 *     loadgen send    --port 10911 --connections 16 --window 16 --messages 200000 --body 1024 --pid 4711
 *     loadgen transact --port 10911 --window 64 --messages 30000
 *     loadgen pull    --port 10911 --messages 200000
 *     loadgen deliver --port 10911 --rate 1000 --messages 10000
 *     loadgen query   --port 10911 --messages 200000 --rate 2000     (so many queries)
 *     loadgen hold    --port 10911 --connections 5000 --hold-ms 3000
 *     loadgen first   --port 10911 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, words);
    fputc('\n', stderr);
    va_end(words);
    exit(1);
}

void *grab(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail("no memory for %zu times %zu bytes", count, size);
    return memory;
}

void *regrab(void *old, size_t bytes) {
    void *memory = realloc(old, bytes);
    if (!memory) fail("no memory for %zu bytes", bytes);
    return memory;
}

void free_all(void *memory) { free(memory); }

typedef struct {
    const char *name;
    size_t place;
    long least, most;
} NumberOption;

#define NUMBER(name, field, least, most) {name, offsetof(Options, field), least, most}
static const NumberOption NUMBERS[] = {
    NUMBER("connections", connections, 1, 60000),
    NUMBER("window", window, 1, WINDOW_MAX),
    NUMBER("messages", messages, 1, 100000000),
    NUMBER("warm-up", warm_up, 0, 100000000),
    NUMBER("body", body, BODY_MIN, 4 << 20),
    NUMBER("topics", topics, 1, TOPICS_MAX),
    NUMBER("queues", queues, 1, QUEUES_MAX),
    NUMBER("first", first, 0, 100000000000),
    NUMBER("batch", batch, 1, 1024),
    NUMBER("rate", rate, 1, 10000000),
    NUMBER("held-pulls", held_pulls, 0, 1000000),
    NUMBER("held-connections", held_connections, 1, 60000),
    NUMBER("held-topics", held_topics, 2, TOPICS_MAX),
    NUMBER("hold-ms", hold_ms, 0, 3600000),
    NUMBER("settle-ms", settle_ms, 0, 60000),
    NUMBER("stall-ms", stall_ms, 1, 3600000),
};
#define NUMBER_COUNT ((int)(sizeof NUMBERS / sizeof *NUMBERS))

static long number_of(const NumberOption *option, const char *text) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || end == text || value < option->least || value > option->most)
        fail("--%s %s: a number from %ld to %ld", option->name, text, option->least, option->most);
    return value;
}

enum { OPTION_HOST = 1000, OPTION_PORT, OPTION_TOPIC, OPTION_WIRE, OPTION_PID, OPTION_NO_CREATE };

static void read_options(int count, char **words, Options *options) {
    struct option known[NUMBER_COUNT + 7] = {{0}};
    int last = NUMBER_COUNT;
    for (int at = 0; at < NUMBER_COUNT; at++) known[at] = (struct option){NUMBERS[at].name, required_argument, NULL, at};
    known[last++] = (struct option){"host", required_argument, NULL, OPTION_HOST};
    known[last++] = (struct option){"port", required_argument, NULL, OPTION_PORT};
    known[last++] = (struct option){"topic", required_argument, NULL, OPTION_TOPIC};
    known[last++] = (struct option){"wire", required_argument, NULL, OPTION_WIRE};
    known[last++] = (struct option){"pid", required_argument, NULL, OPTION_PID};
    known[last] = (struct option){"no-create", no_argument, NULL, OPTION_NO_CREATE};
    static const NumberOption PID = {"pid", 0, 1, 1 << 30};
    int which;
    while ((which = getopt_long(count, words, "", known, NULL)) != -1) {
        if (which >= 0 && which < NUMBER_COUNT) {
            long value = number_of(&NUMBERS[which], optarg);
            memcpy((char *)options + NUMBERS[which].place, &value, sizeof value);
            continue;
        }
        switch (which) {
            case OPTION_HOST: options->host = optarg; break;
            case OPTION_PORT: options->port = optarg; break;
            case OPTION_TOPIC: options->topic = optarg; break;
            case OPTION_WIRE: options->wire = optarg; break;
            case OPTION_PID: options->pid = (pid_t)number_of(&PID, optarg); break;
            case OPTION_NO_CREATE: options->create = false; break;
            default: exit(2); /* getopt has said which option */
        }
    }
    if (optind != count) fail("%s is not an option", words[optind]);
    if (strlen(options->topic) + 6 > NAME_MAX_BYTES) fail("--topic: a name of at most %d bytes", NAME_MAX_BYTES - 6);
}

int main(int count, char **words) {
    Options options = {.host = "127.0.0.1", .port = "10911", .topic = "bench", .wire = "rocketmq", .connections = 1,
                       .window = 1, .messages = 10000, .body = 100, .topics = 1, .queues = 4, .batch = 32, .rate = 1000,
                       .held_connections = 100, .held_topics = 50, .hold_ms = 1000, .settle_ms = 200,
                       .stall_ms = 30000, .create = true};
    static const struct {
        const char *name;
        void (*run)(const Options *options);
    } MODES[] = {{"send", run_send}, {"transact", run_transact}, {"pull", run_pull}, {"deliver", run_deliver},
                 {"query", run_query}, {"hold", run_hold}, {"first", run_first}};
    if (count < 2) fail("give a mode: send, transact, pull, deliver, query, hold, first");
    options.mode = words[1];
    read_options(count - 1, words + 1, &options);
    for (size_t at = 0; at < sizeof MODES / sizeof *MODES; at++)
        if (!strcmp(MODES[at].name, options.mode)) {
            MODES[at].run(&options);
            return 0;
        }
    fail("%s: not one of send, transact, pull, deliver, query, hold, first", options.mode);
}
