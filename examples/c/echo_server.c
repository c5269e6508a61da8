/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends back received data, on any transport: echo-server tcp://127.0.0.1:7777 rdma://... */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <aeconn.h>

static void on_writable(void* context, aeconn_conn* conn);

/* Echoes received data directly from the receive buffer, as much as can be written. */
static void on_readable(void* context, aeconn_conn* conn) {
  aeconn_view view;
  ssize_t size = aeconn_peek(conn, 1, &view);
  (void)context;
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) { /* end of stream, or an error */
    aeconn_close(conn);
    return;
  }
  size = aeconn_writev(conn, view.pieces, view.count);
  if (size > 0) aeconn_consume(conn, (size_t)size);
  if (size < 0 && errno != EAGAIN) {
    aeconn_close(conn);
  } else if (size < (ssize_t)view.size) { /* partial write: wait until writable */
    aeconn_on_readable(conn, NULL, NULL);
    aeconn_on_writable(conn, on_writable, NULL);
  }
}

static void on_writable(void* context, aeconn_conn* conn) {
  aeconn_on_writable(conn, NULL, NULL);
  if (aeconn_on_readable(conn, on_readable, context) != 0) aeconn_close(conn);
}

static void on_accepted(void* context, aeconn_conn* conn) {
  if (aeconn_on_readable(conn, on_readable, context) != 0) aeconn_close(conn);
}

/* Opens descriptors 0, 1 and 2 if they are closed, so that no socket gets their numbers. */
static void open_standard_streams(void) {
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) close(fd);
}

int main(int argc, char** argv) {
  aeconn_loop* loop;
  aeconn_listener** listeners = calloc((size_t)argc, sizeof *listeners);
  int status = 1, i;
  open_standard_streams();
  loop = aeconn_loop_new();
  if (loop == NULL || listeners == NULL || argc < 2) {
    fprintf(stderr, "usage: echo-server URL...\n");
    goto end;
  }
  for (i = 1; i < argc; ++i) {
    listeners[i] = aeconn_listen(loop, argv[i], on_accepted, NULL);
    if (listeners[i] == NULL) {
      fprintf(stderr, "echo-server: %s\n", aeconn_error());
      goto end;
    }
    printf("%s\n", aeconn_listener_url(listeners[i], 0));
  }
  if (fflush(stdout) != 0) {
    perror("echo-server: standard output");
    goto end;
  }
  status = aeconn_run(loop) == 0 ? 0 : 1;
end:
  for (i = 1; listeners != NULL && i < argc; ++i) aeconn_listener_free(listeners[i]);
  free(listeners);
  aeconn_loop_free(loop);
  return status;
}
