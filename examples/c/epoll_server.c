/* SPDX-License-Identifier: BSD-3-Clause */
/* An echo server within the event loop that a program already has, here epoll(7): the library adds
 * one descriptor to it, for connections of each transport. The program's own events are signals:
 * SIGTERM and SIGINT end it. (echo_server.c shows how to wait for the answers.)
 *
 *   ./epoll-server tcp://127.0.0.1:7777 unix:///tmp/echo.sock */

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <aeconn.h>

/* The clients and the listeners, which the program must close and free at its end. */
struct client {
  aeconn_conn* conn;
  struct client *previous, *next;
};
static struct client clients = {NULL, &clients, &clients};
enum { LISTENERS = 16 };
static aeconn_listener* listeners[LISTENERS];

static void end_client(struct client* client) {
  client->previous->next = client->next;
  client->next->previous = client->previous;
  aeconn_close(client->conn);
  free(client);
}

static void on_readable(void* context, aeconn_conn* conn);

/* Called when there is room for the rest of the answer: reading goes on. */
static void on_writable(void* context, aeconn_conn* conn) {
  aeconn_on_writable(conn, NULL, NULL);
  if (aeconn_on_readable(conn, on_readable, context) != 0) end_client(context);
}

static void on_readable(void* context, aeconn_conn* conn) {
  aeconn_view view;
  ssize_t size = aeconn_peek(conn, 1, &view);
  if (size < 0 && errno == EAGAIN) return;
  if (size > 0) size = aeconn_writev(conn, view.pieces, view.count);
  if (size > 0) aeconn_consume(conn, (size_t)size);
  if (size == 0 || (size < 0 && errno != EAGAIN)) {
    end_client(context);
  } else if (size < (ssize_t)view.size) {
    aeconn_on_readable(conn, NULL, NULL);
    if (aeconn_on_writable(conn, on_writable, context) != 0) end_client(context);
  }
}

static void on_accepted(void* context, aeconn_conn* conn) {
  struct client* client = malloc(sizeof *client);
  (void)context;
  if (client == NULL) {
    aeconn_close(conn);
    return;
  }
  *client = (struct client){conn, &clients, clients.next};
  clients.next->previous = client;
  clients.next = client;
  if (aeconn_on_readable(conn, on_readable, client) != 0) end_client(client);
}

static int add(int poller, int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  return fd < 0 ? -1 : epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

/* Runs the program's loop until one of the signals comes. Returns 0, or -1 on failure. */
static int serve(aeconn_loop* loop, const sigset_t* signals) {
  const int poller = epoll_create1(EPOLL_CLOEXEC), ending = signalfd(-1, signals, SFD_CLOEXEC);
  int result = -1;
  if (poller < 0 || add(poller, ending) != 0 || add(poller, aeconn_descriptor(loop)) != 0) goto end;
  while (result != 0) {
    /* Sends what was written since aeconn_dispatch(). 0: there is more to do at once. */
    const int may_sleep = aeconn_prepare(loop);
    struct epoll_event events[64];
    int i, count;
    if (may_sleep < 0) goto end;
    count = epoll_wait(poller, events, 64, may_sleep ? -1 : 0);
    if (count < 0 && errno != EINTR) goto end;
    for (i = 0; i < count; ++i)
      if (events[i].data.fd == ending) result = 0;
    if (aeconn_dispatch(loop) < 0) goto end;
  }
end:
  if (ending >= 0) close(ending);
  if (poller >= 0) close(poller);
  return result;
}

int main(int argc, char** argv) {
  aeconn_loop* loop;
  sigset_t signals;
  int status = 1, i;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, NULL); /* before the library has threads */
  loop = aeconn_loop_new();
  if (loop == NULL || argc < 2 || argc - 1 > LISTENERS) {
    fprintf(stderr, "usage: epoll-server URL... (at most %d)\n", LISTENERS);
    goto end;
  }
  for (i = 1; i < argc; ++i) {
    listeners[i - 1] = aeconn_listen(loop, argv[i], on_accepted, NULL);
    if (listeners[i - 1] == NULL) {
      fprintf(stderr, "epoll-server: %s\n", aeconn_error());
      goto end;
    }
    printf("%s\n", aeconn_listener_url(listeners[i - 1], 0));
  }
  if (fflush(stdout) == 0 && serve(loop, &signals) == 0) status = 0;
end:
  while (clients.next != &clients) end_client(clients.next);
  for (i = 0; i < LISTENERS; ++i) aeconn_listener_free(listeners[i]); /* ignores NULL */
  aeconn_loop_free(loop);
  return status;
}
