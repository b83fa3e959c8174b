/* What the files of the load generator share.
 *
 * One thread, one epoll loop. A Link is a connection with a buffer each way; its owner gives it a function that
 * takes complete frames out of what has arrived. Requests are put into the out buffer and leave with one write a turn
 * of the loop. Every mode (send, transact, pull, deliver, query, hold, first) is a file of its own and prints one JSON object.
 * A response that is not the one expected ends the process with a line on standard error and exit code 1. */
#ifndef EMBERMQ_LOAD_H
#define EMBERMQ_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define QUEUES_MAX 10     /* one digit in a frame */
#define TOPICS_MAX 10000  /* four digits in a frame */
#define WINDOW_MAX 65536
#define NAME_MAX_BYTES 100

/* ---- options (main.c) ---- */

typedef struct {
    const char *mode, *host, *port, *topic, *wire;
    long connections, window, messages, warm_up, body, topics, queues, first, batch, rate;
    long held_pulls, held_connections, held_topics, hold_ms, settle_ms, stall_ms;
    pid_t pid; /* the server, for its CPU time; 0: not measured */
    bool create;
} Options;

void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *grab(size_t count, size_t size); /* zeroed, or the process ends */
void *regrab(void *old, size_t bytes);
void free_all(void *memory);

/* ---- time (measure.c) ---- */

uint64_t now_ns(void);       /* monotonic */
uint64_t wall_ms(void);      /* since 1970 */
uint64_t cpu_ns(pid_t pid);  /* of all threads of a process, those that have ended included */

typedef struct {
    uint64_t *values;
    size_t count, size;
} Samples;

void samples_add(Samples *samples, uint64_t value);
void samples_sort(Samples *samples);
double samples_us(const Samples *sorted, double part); /* nanoseconds to microseconds; 0 where there are none */
void samples_print(Samples *samples, const char *name); /* sorts; "name_p50_us": ... */
uint64_t mix64(uint64_t value);

/* ---- connections (links.c) ---- */

typedef struct {
    uint8_t *data;
    size_t start, end, size;
} Buffer;

uint8_t *buffer_room(Buffer *buffer, size_t bytes); /* where so many bytes may be written; buffer_wrote() after it */
void buffer_wrote(Buffer *buffer, size_t bytes);

typedef struct Link Link;
typedef struct Loop Loop;
/* Takes whole frames from the start of `data`; how many bytes it took. */
typedef size_t (*Taker)(Link *link, const uint8_t *data, size_t bytes);

struct Link {
    int fd;
    bool waits_for_room; /* the kernel's buffer is full: EPOLLOUT is asked for */
    bool touched;        /* has something to write at the end of this turn */
    Buffer in, out;
    Taker take;
    void *owner;
    Loop *loop;
};

struct Loop {
    int epoll;
    Link **touched;
    size_t touched_count, touched_size;
    uint64_t heard_ns; /* when anything arrived last */
    uint64_t stall_ns; /* silence after which the process ends */
    bool quiet_allowed;
};

void loop_open(Loop *loop, const Options *options);
void loop_turn(Loop *loop, int timeout_ms);
void loop_turn_until(Loop *loop, uint64_t deadline_ns); /* to the microsecond or so */
void rest(Loop *loop, long rest_ms); /* turns without anything asked: silence is no problem */
void loop_close(Loop *loop);
void link_open(Link *link, Loop *loop, const Options *options, Taker take, void *owner);
bool link_try(Link *link, Loop *loop, const Options *options, Taker take, void *owner); /* false: refused */
void link_touch(Link *link); /* after putting something into link->out */
void link_close(Link *link);

/* ---- RocketMQ's frames (frames.c) ---- */

typedef struct {
    long code, opaque, flag, queue_id;
    int64_t queue_offset, next_begin, max_offset;
    const char *msg_id; /* in the frame */
    size_t msg_id_bytes;
    const uint8_t *body;
    size_t body_bytes;
} Answer;

typedef struct {
    long queue_id;
    int64_t queue_offset;
    uint32_t body_crc;
    const uint8_t *body;
    size_t body_bytes;
} Record;

uint32_t load_u32(const uint8_t *at);
uint64_t load_u64(const uint8_t *at);
void store_u32(uint8_t *at, uint32_t value);
void put_digits(uint8_t *at, int digits, uint64_t value);
uint64_t read_digits(const uint8_t *at, int digits);
uint32_t crc32_of(const uint8_t *data, size_t bytes);

/* Bytes of the frame at the start of `data`, or 0 when it is not complete yet. */
size_t answer_read(const uint8_t *data, size_t bytes, Answer *answer);
/* The record at *at; moves *at on. Checks length, magic number and checksum. */
void record_read(const uint8_t *body, size_t bytes, size_t *at, Record *record);
/* A request with a JSON header and no body. */
void request_put(Buffer *out, const char *header, size_t header_bytes);
void pull_put(Buffer *out, const Options *options, const char *topic, long queue, int64_t offset, long opaque,
              long suspend_ms);

/* ---- what a message looks like (messages.c) ---- */

#define NUMBER_DIGITS 12 /* a body begins with the number of its message */
#define BODY_MIN (NUMBER_DIGITS + 1)

void topic_name(char *text, const Options *options, long topic);
long topic_of(const Options *options, uint64_t number);
long queue_of(const Options *options, uint64_t number);

/* How messages are sent and acknowledged: RocketMQ, Redis Streams, NATS JetStream. */
typedef struct Wire Wire;
struct Wire {
    const char *name;
    bool in_order; /* acknowledgements carry no id */
    void (*prepare)(const Options *options);
    void (*greet)(Link *link);
    void (*put)(Link *link, const Options *options, uint64_t number, long opaque);
    /* Bytes of the acknowledgement at the start of `data`; 0: not complete. opaque -1: not an acknowledgement. */
    size_t (*read)(Link *link, const uint8_t *data, size_t bytes, Answer *answer);
};
const Wire *wire_named(const char *name);
void body_put(uint8_t *at, const Options *options, uint64_t number);
void bodies_make(const Options *options);
extern const Wire ROCKETMQ_WIRE, REDIS_WIRE, NATS_WIRE;

/* ---- the modes ---- */

void run_send(const Options *options);
void send_quietly(const Options *options); /* one message into each queue */
void run_transact(const Options *options);
void run_pull(const Options *options);
void run_deliver(const Options *options);
void run_query(const Options *options);
void run_hold(const Options *options);
void run_first(const Options *options);

/* Pulls that wait on queues of their own while something else is measured (hold.c). */
typedef struct Held Held;
Held *held_open(Loop *loop, const Options *options);
long held_answered(const Held *held);
void held_close(Held *held);

#endif
