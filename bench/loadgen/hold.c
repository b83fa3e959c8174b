/* hold: connections that do nothing, and pulls that wait; both are asked whether they still live.
 *
 * first: how soon a server that is starting acknowledges a message: tries to connect until it can. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "load.h"

#define HEADER_MAX 1024
#define SUSPEND_MS 600000
#define TRY_EVERY_US 2000

/* ---- pulls that wait ---- */

struct Held {
    const Options *options;
    Link *links;
    int64_t *offsets; /* of each pull; it has read what is there and waits at the end when that is not 0 */
    long at_end, answered;
};

static void held_topic(char *text, const Options *options, long topic) {
    snprintf(text, NAME_MAX_BYTES, "held-%04ld", topic % options->held_topics);
}

static void hold_again(Held *held, Link *link, long opaque) {
    char topic[NAME_MAX_BYTES];
    held_topic(topic, held->options, opaque / held->options->queues);
    pull_put(&link->out, held->options, topic, opaque % held->options->queues, held->offsets[opaque],
             opaque, SUSPEND_MS);
    link_touch(link);
}

/* A server may answer a pull that waited long enough with "not found" (19); it is asked again. */
static size_t take_held(Link *link, const uint8_t *data, size_t bytes) {
    Held *held = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    while ((frame = answer_read(data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (!(answer.flag & 1) || answer.opaque >= held->options->held_pulls) continue;
        if (answer.code == 0 && answer.next_begin > held->offsets[answer.opaque]) {
            held->at_end += held->offsets[answer.opaque] == 0;
            held->offsets[answer.opaque] = answer.next_begin;
        } else if (answer.code == 19 || answer.code == 20) {
            held->answered++;
        } else {
            fail("a pull that waits was answered with code %ld", answer.code);
        }
        hold_again(held, link, answer.opaque);
    }
    return taken;
}

/* One message into each queue makes it. A pull that has had it knows where the end of the queue is. */
static void make_queues(const Options *options) {
    Options making = *options;
    making.topic = "held";
    making.topics = options->held_topics;
    making.connections = making.window = 1;
    making.first = 0;
    send_quietly(&making);
}

Held *held_open(Loop *loop, const Options *options) {
    Held *held = grab(1, sizeof *held);
    held->options = options;
    held->offsets = grab((size_t)options->held_pulls, sizeof(int64_t));
    held->links = grab((size_t)options->held_connections, sizeof(Link));
    make_queues(options);
    rest(loop, options->hold_ms); /* the queues have their messages: no pull comes before its message */
    for (long at = 0; at < options->held_connections; at++)
        link_open(&held->links[at], loop, options, take_held, held);
    for (long pull = 0; pull < options->held_pulls; pull++)
        hold_again(held, &held->links[pull % options->held_connections], pull);
    loop->heard_ns = now_ns();
    while (held->at_end < options->held_pulls) loop_turn(loop, 1000);
    rest(loop, options->hold_ms);
    held->answered = 0;
    return held;
}

long held_answered(const Held *held) { return held->answered; }

void held_close(Held *held) {
    for (long at = 0; at < held->options->held_connections; at++) link_close(&held->links[at]);
    free_all(held->links);
    free_all(held->offsets);
    free_all(held);
}

/* ---- idle connections ---- */

typedef struct {
    long answered;
} Idle;

static size_t take_counted(Link *link, const uint8_t *data, size_t bytes) {
    Idle *idle = link->owner;
    size_t taken = 0, frame;
    Answer answer;
    while ((frame = answer_read(data + taken, bytes - taken, &answer)) > 0) {
        taken += frame;
        if (!(answer.flag & 1)) continue;
        if (answer.code) fail("an idle connection was answered with code %ld", answer.code);
        idle->answered++;
    }
    return taken;
}

/* A cheap request on every connection; returns when all are answered. */
static void ask_all(Loop *loop, Link *links, const Options *options, Idle *idle) {
    char header[HEADER_MAX];
    idle->answered = 0;
    for (long at = 0; at < options->connections; at++) {
        int bytes = snprintf(header, sizeof header,
                             "{\"code\":30,\"extFields\":{\"queueId\":\"0\",\"topic\":\"TBW102\"},\"flag\":0,"
                             "\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}", at);
        request_put(&links[at].out, header, (size_t)bytes);
        link_touch(&links[at]);
    }
    while (idle->answered < options->connections) loop_turn(loop, 1000);
}

void run_hold(const Options *options) {
    Link *links = grab((size_t)options->connections, sizeof(Link));
    Idle idle = {0};
    Loop loop;
    loop_open(&loop, options);
    uint64_t began = now_ns();
    for (long at = 0; at < options->connections; at++) link_open(&links[at], &loop, options, take_counted, &idle);
    ask_all(&loop, links, options, &idle);
    double seconds = (double)(now_ns() - began) / 1e9;
    uint64_t cpu = cpu_ns(options->pid);
    rest(&loop, options->hold_ms);
    double used = (double)(cpu_ns(options->pid) - cpu) / 1e6;
    ask_all(&loop, links, options, &idle);
    printf("{\"connections\": %ld, \"held\": %ld, \"open_seconds\": %.6f, \"idle_ms\": %ld, \"idle_cpu_ms\": %.3f}\n",
           options->connections, idle.answered, seconds, options->hold_ms, used);
    fflush(stdout);
    getchar(); /* they stay until the driver has looked at the server, and closes our standard input */
    for (long at = 0; at < options->connections; at++) link_close(&links[at]);
    free_all(links);
    loop_close(&loop);
}

/* ---- the first acknowledgement of a server that starts ---- */

static size_t take_first(Link *link, const uint8_t *data, size_t bytes) {
    Answer *answer = link->owner;
    return answer_read(data, bytes, answer);
}

void run_first(const Options *options) {
    Answer answer = {.code = -1};
    uint64_t deadline = now_ns() + (uint64_t)options->stall_ms * 1000000u;
    long tries = 0, refused = 0;
    Loop loop;
    Link link;
    loop_open(&loop, options);
    ROCKETMQ_WIRE.prepare(options);
    while (!link_try(&link, &loop, options, take_first, &answer)) {
        if (now_ns() > deadline) fail("%s:%s: no server in %ld ms", options->host, options->port, options->stall_ms);
        tries++;
        usleep(TRY_EVERY_US);
    }
    uint64_t connected = now_ns();
    for (loop.heard_ns = connected; answer.code != 0; refused++) {
        if (now_ns() > deadline) fail("no acknowledgement: code %ld", answer.code);
        if (refused) usleep(TRY_EVERY_US);
        answer.code = -1;
        ROCKETMQ_WIRE.put(&link, options, (uint64_t)options->first, 1000000000L);
        link_touch(&link);
        while (answer.code < 0) loop_turn(&loop, 1000);
    }
    printf("{\"connected_ns\": %llu, \"acknowledged_ns\": %llu, \"tries\": %ld, \"refused\": %ld}\n",
           (unsigned long long)connected, (unsigned long long)now_ns(), tries, refused - 1);
    link_close(&link);
    loop_close(&loop);
}
