/* Connections: read what is there, let the owner take whole frames, write everything at the end of the turn. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define READ_BYTES (256u * 1024u)
#define FRAME_BYTES_MAX (64u * 1024u * 1024u)
#define EVENTS 512

uint8_t *buffer_room(Buffer *buffer, size_t bytes) {
    if (buffer->start == buffer->end) buffer->start = buffer->end = 0;
    if (buffer->size - buffer->end >= bytes) return buffer->data + buffer->end;
    size_t kept = buffer->end - buffer->start;
    if (kept && buffer->start) memmove(buffer->data, buffer->data + buffer->start, kept);
    buffer->start = 0;
    buffer->end = kept;
    if (buffer->size < kept + bytes) {
        if (kept + bytes > FRAME_BYTES_MAX) fail("more than %u bytes wait on one connection", FRAME_BYTES_MAX);
        buffer->size = 2 * (kept + bytes);
        buffer->data = regrab(buffer->data, buffer->size);
    }
    return buffer->data + buffer->end;
}

void buffer_wrote(Buffer *buffer, size_t bytes) { buffer->end += bytes; }

void loop_open(Loop *loop, const Options *options) {
    memset(loop, 0, sizeof *loop);
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0) fail("epoll_create1: %s", strerror(errno));
    loop->heard_ns = now_ns();
    loop->stall_ns = (uint64_t)options->stall_ms * 1000000u;
}

void loop_close(Loop *loop) {
    close(loop->epoll);
    free_all(loop->touched);
}

static int connected_socket(const Options *options, bool may_fail) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int problem = getaddrinfo(options->host, options->port, &hints, &found);
    if (problem) fail("%s:%s: %s", options->host, options->port, gai_strerror(problem));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket: %s (is the limit of open files too low? ulimit -n)", strerror(errno));
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        if (!may_fail) fail("%s:%s: %s", options->host, options->port, strerror(errno));
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

bool link_try(Link *link, Loop *loop, const Options *options, Taker take, void *owner) {
    int on = 1, fd = connected_socket(options, true);
    if (fd < 0) return false;
    memset(link, 0, sizeof *link);
    link->fd = fd;
    link->loop = loop;
    link->take = take;
    link->owner = owner;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
    return true;
}

void link_open(Link *link, Loop *loop, const Options *options, Taker take, void *owner) {
    if (!link_try(link, loop, options, take, owner))
        fail("%s:%s: no connection: %s", options->host, options->port, strerror(errno));
}

void link_close(Link *link) {
    close(link->fd);
    free_all(link->in.data);
    free_all(link->out.data);
    memset(link, 0, sizeof *link);
    link->fd = -1;
}

void link_touch(Link *link) {
    Loop *loop = link->loop;
    if (link->touched) return;
    link->touched = true;
    if (loop->touched_count == loop->touched_size) {
        loop->touched_size = loop->touched_size ? 2 * loop->touched_size : 64;
        loop->touched = regrab(loop->touched, loop->touched_size * sizeof(Link *));
    }
    loop->touched[loop->touched_count++] = link;
}

static void ask_for_room(Link *link, bool wanted) {
    if (link->waits_for_room == wanted) return;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? (uint32_t)EPOLLOUT : 0u), .data.ptr = link};
    if (epoll_ctl(link->loop->epoll, EPOLL_CTL_MOD, link->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
    link->waits_for_room = wanted;
}

static void link_write(Link *link) {
    Buffer *out = &link->out;
    while (out->start < out->end) {
        ssize_t sent = send(link->fd, out->data + out->start, out->end - out->start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) fail("the server closed a connection: %s", strerror(errno));
            ask_for_room(link, true);
            return;
        }
        out->start += (size_t)sent;
    }
    ask_for_room(link, false);
}

static void link_read(Link *link) {
    Buffer *in = &link->in;
    uint8_t *room = buffer_room(in, READ_BYTES);
    ssize_t got = recv(link->fd, room, in->size - in->end, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the server closed a connection%s%s", got ? ": " : "", got ? strerror(errno) : "");
    buffer_wrote(in, (size_t)got);
    link->loop->heard_ns = now_ns();
    in->start += link->take(link, in->data + in->start, in->end - in->start);
}

static void write_touched(Loop *loop) {
    for (size_t at = 0; at < loop->touched_count; at++) {
        loop->touched[at]->touched = false;
        link_write(loop->touched[at]);
    }
    loop->touched_count = 0;
}

void loop_turn(Loop *loop, int timeout_ms) {
    struct epoll_event events[EVENTS];
    write_touched(loop);
    int ready = epoll_wait(loop->epoll, events, EVENTS, timeout_ms);
    if (ready < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
    for (int at = 0; at < ready; at++) {
        Link *link = events[at].data.ptr;
        if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) link_read(link);
        if (events[at].events & EPOLLOUT) link_write(link);
    }
    write_touched(loop);
    if (!loop->quiet_allowed && now_ns() - loop->heard_ns > loop->stall_ns)
        fail("no answer for %.1f s", (double)loop->stall_ns / 1e9);
}

void loop_turn_until(Loop *loop, uint64_t deadline_ns) {
    struct pollfd ready = {.fd = loop->epoll, .events = POLLIN};
    write_touched(loop);
    uint64_t now = now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec wait = {.tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u)};
    if (ppoll(&ready, 1, &wait, NULL) < 0 && errno != EINTR) fail("ppoll: %s", strerror(errno));
    loop_turn(loop, 0);
}

void rest(Loop *loop, long rest_ms) {
    uint64_t until = now_ns() + (uint64_t)rest_ms * 1000000u;
    loop->quiet_allowed = true;
    while (now_ns() < until) loop_turn(loop, 10);
    loop->quiet_allowed = false;
    loop->heard_ns = now_ns();
}
