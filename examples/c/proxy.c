/* SPDX-License-Identifier: BSD-3-Clause */
/* A proxy in one thread: accepts on one URL, connects to another for each client, and copies both
 * directions. It reads from one side only as fast as the other side accepts.
 *
 *   ./proxy tcp://127.0.0.1:7778 unix:///tmp/echo.sock
 *
 * SIGTERM and SIGINT end listening; open connections may take ten seconds more. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <aeconn.h>

struct pair;
struct end {
  aeconn_conn* conn;
  struct end* other;
  struct pair* pair;
  int ended; /* its stream has ended: read returned 0 */
};
struct pair {
  struct end client, server;
  struct pair *previous, *next;
};
static struct pair pairs = {.previous = &pairs, .next = &pairs};

struct proxy {
  aeconn_loop* loop;
  const char* target;
};

/* Ends both connections by aeconn_close(), or by aeconn_abort(): then the peers see an error. */
static void end_pair(struct pair* pair, void (*how)(aeconn_conn*)) {
  pair->previous->next = pair->next;
  pair->next->previous = pair->previous;
  how(pair->client.conn);
  how(pair->server.conn); /* ignores NULL */
  free(pair);
}

static void on_readable(void* context, aeconn_conn* conn);

/* Set only where no read would show a failure: during the connect, and after the stream's end. In
 * between, bytes may be unread that come before the failure. */
static void on_failed(void* context, aeconn_conn* conn) {
  struct end* end = context;
  (void)conn;
  end_pair(end->pair, aeconn_abort);
}

/* The stream of `from` has ended. The other direction goes on. */
static void on_end(struct end* from) {
  from->ended = 1;
  aeconn_on_readable(from->conn, NULL, NULL); /* it would run in each iteration */
  if (from->other->ended ||
      aeconn_shutdown(from->other->conn, AECONN_WRITABLE) != 0) /* a peer without half-close */
    end_pair(from->pair, aeconn_close);
  else if (aeconn_on_failed(from->conn, on_failed, from) != 0)
    end_pair(from->pair, aeconn_abort);
}

/* There is room again: reads from the other side. */
static void on_writable(void* context, aeconn_conn* conn) {
  struct end* to = context;
  aeconn_on_writable(conn, NULL, NULL); /* it would run in each iteration */
  if (aeconn_on_readable(to->other->conn, on_readable, to->other) != 0)
    end_pair(to->pair, aeconn_abort);
}

static void on_readable(void* context, aeconn_conn* conn) {
  struct end *from = context, *to = from->other;
  aeconn_view view;
  ssize_t size = aeconn_peek(conn, 1, &view);
  if (size < 0 && errno == EAGAIN) return;
  if (size == 0) {
    on_end(from);
    return;
  }
  if (size > 0) size = aeconn_writev(to->conn, view.pieces, view.count);
  if (size > 0) aeconn_consume(conn, (size_t)size);
  if (size < 0 && errno != EAGAIN) {
    end_pair(from->pair, aeconn_abort);
  } else if (size < (ssize_t)view.size) { /* back-pressure: stop reading until there is room */
    aeconn_on_readable(conn, NULL, NULL);
    if (aeconn_on_writable(to->conn, on_writable, to) != 0) end_pair(from->pair, aeconn_abort);
  }
}

static void on_connected(void* context, aeconn_conn* conn) {
  struct pair* pair = context;
  if (aeconn_get_state(conn) != AECONN_CONNECTED) {
    fprintf(stderr, "proxy: %s\n", aeconn_last_error(conn));
    end_pair(pair, aeconn_abort);
    return;
  }
  aeconn_on_failed(pair->client.conn, NULL, NULL);
  if (aeconn_on_readable(pair->client.conn, on_readable, &pair->client) != 0 ||
      aeconn_on_readable(conn, on_readable, &pair->server) != 0)
    end_pair(pair, aeconn_abort);
}

/* What the client sends waits until the connection to the target is there. */
static void on_accepted(void* context, aeconn_conn* conn) {
  const struct proxy* proxy = context;
  struct pair* pair = malloc(sizeof *pair);
  if (pair == NULL) {
    aeconn_abort(conn);
    return;
  }
  pair->client = (struct end){conn, &pair->server, pair, 0};
  pair->server = (struct end){NULL, &pair->client, pair, 0};
  pair->previous = &pairs;
  pair->next = pairs.next;
  pairs.next = pair->next->previous = pair;
  pair->server.conn = aeconn_connect(proxy->loop, proxy->target, on_connected, pair);
  if (pair->server.conn == NULL) fprintf(stderr, "proxy: %s\n", aeconn_error());
  if (pair->server.conn == NULL || aeconn_on_failed(conn, on_failed, &pair->client) != 0)
    end_pair(pair, aeconn_abort);
}

int main(int argc, char** argv) {
  struct proxy proxy = {aeconn_loop_new(), argc == 3 ? argv[2] : NULL};
  aeconn_graceful_stop* stop;
  aeconn_listener* listener = NULL;
  int status = 1;
  if (argc != 3) {
    fprintf(stderr, "usage: proxy LISTEN-URL CONNECT-URL\n");
    aeconn_loop_free(proxy.loop);
    return 2;
  }
  stop = aeconn_graceful_stop_new(proxy.loop, NULL, 10 * INT64_C(1000000000), NULL);
  if (stop != NULL) listener = aeconn_listen(proxy.loop, argv[1], on_accepted, &proxy);
  if (listener == NULL) {
    fprintf(stderr, "proxy: %s\n", aeconn_error());
  } else {
    printf("%s\n", aeconn_listener_url(listener, 0));
    /* The stop frees the listener. 1 as the result: connections were left after ten seconds. */
    if (fflush(stdout) == 0 && aeconn_graceful_stop_add(stop, listener) == 0 &&
        aeconn_run(proxy.loop) == 0)
      status = aeconn_graceful_stop_status(stop, NULL, NULL);
  }
  while (pairs.next != &pairs) end_pair(pairs.next, aeconn_abort);
  aeconn_graceful_stop_free(stop);
  aeconn_loop_free(proxy.loop);
  return status;
}
