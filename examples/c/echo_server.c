/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends back received data, on any transport: echo-server tcp://127.0.0.1:7777 rdma://...
 * SIGTERM and SIGINT end it when each client has its answer. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <aeconn.h>

/* The clients, so that each can be told of the stop. */
struct client {
  aeconn_conn* conn;
  struct client *previous, *next;
};
static struct client clients = {NULL, &clients, &clients};
static aeconn_graceful_stop* stop;

static int serving(void) { return aeconn_graceful_stop_get_phase(stop) == AECONN_SERVING; }

static void end_client(struct client* client) {
  client->previous->next = client->next;
  client->next->previous = client->previous;
  aeconn_close(client->conn);
  free(client);
}

static void on_readable(void* context, aeconn_conn* conn);

static void on_writable(void* context, aeconn_conn* conn) {
  aeconn_on_writable(conn, NULL, NULL);
  if (aeconn_on_readable(conn, on_readable, context) != 0)
    end_client(context);
  else
    on_readable(context, conn);
}

/* Goes on with a client in a later iteration, when it can be written to. */
static void later(struct client* client) {
  aeconn_on_readable(client->conn, NULL, NULL);
  if (aeconn_on_writable(client->conn, on_writable, client) != 0) end_client(client);
}

/* Echoes received data directly from the receive buffer, as much as can be written. */
static void on_readable(void* context, aeconn_conn* conn) {
  aeconn_view view;
  ssize_t size = aeconn_peek(conn, 1, &view);
  if (size < 0 && errno == EAGAIN && serving()) return;
  if (size <= 0) { /* end of stream, an error, or all is answered and the server stops */
    end_client(context);
    return;
  }
  size = aeconn_writev(conn, view.pieces, view.count);
  if (size > 0) aeconn_consume(conn, (size_t)size);
  if (size < 0 && errno != EAGAIN)
    end_client(context);
  else if (size < (ssize_t)view.size || !serving()) /* a partial write, or is there more? */
    later(context);
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
  later(client);
}

/* Called when the server stops: clients that wait for no answer end soon. */
static void on_stop(void* context, aeconn_loop* loop) {
  struct client *each, *next;
  (void)context, (void)loop;
  for (each = clients.next; each != &clients; each = next) {
    next = each->next;
    later(each);
  }
}

/* Opens descriptors 0, 1 and 2 if they are closed, so that no socket gets their numbers. */
static void open_standard_streams(void) {
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) close(fd);
}

int main(int argc, char** argv) {
  const aeconn_stop_settings settings = {.begins = on_stop};
  aeconn_loop* loop;
  int status = 1, i;
  open_standard_streams();
  loop = aeconn_loop_new();
  if (loop == NULL || argc < 2) {
    fprintf(stderr, "usage: echo-server URL...\n");
    goto end;
  }
  stop = aeconn_graceful_stop_new(loop, NULL, 10 * INT64_C(1000000000), &settings);
  if (stop == NULL) {
    fprintf(stderr, "echo-server: %s\n", aeconn_error());
    goto end;
  }
  for (i = 1; i < argc; ++i) {
    aeconn_listener* listener = aeconn_listen(loop, argv[i], on_accepted, NULL);
    if (listener == NULL) {
      fprintf(stderr, "echo-server: %s\n", aeconn_error());
      goto end;
    }
    printf("%s\n", aeconn_listener_url(listener, 0));
    if (aeconn_graceful_stop_add(stop, listener) != 0) goto end;
  }
  if (fflush(stdout) != 0) {
    perror("echo-server: standard output");
    goto end;
  }
  if (aeconn_run(loop) == 0) status = aeconn_graceful_stop_status(stop, NULL, NULL);
end:
  while (clients.next != &clients) end_client(clients.next);
  aeconn_graceful_stop_free(stop);
  aeconn_loop_free(loop);
  return status;
}
