/* SPDX-License-Identifier: BSD-3-Clause */
#include "bouncer.h"

#include <usual/err.h>
#include <usual/safeio.h>

#include <aeconn.h>

struct AeconnLink {
	aeconn_conn *dialled;	/* while a server is being connected */
	PgSocket *server;	/* the same */
	bool held;		/* by an SBuf */
	bool open;		/* until on_ended() */
	PgAddr remote, local;
	char transport[32];
	char path[256];		/* both addresses, for the log */
	char host[256];		/* of a server's URL */
};

char *cf_aeconn_listen;

static aeconn_loop *loop;
static struct event loop_event;
static bool dispatching;
static aeconn_listener **listeners;
static int listener_count;

static void on_ready(evutil_socket_t fd, short flags, void *arg)
{
	dispatching = true;
	if (aeconn_dispatch(loop) < 0)
		log_error("aeconn: %s", aeconn_error());
	dispatching = false;
}

/* Delivers what was written last, as the kernel does for sockets. */
static void end_loop(void)
{
	/* exit() was called by a handler of the loop */
	if (dispatching)
		return;
	aeconn_stop_listening();
	event_del(&loop_event);
	aeconn_loop_free(loop);
	loop = NULL;
}

static void on_fallback(void *context, const char *url, const char *why)
{
	log_info("connected to %s: %s", url, why);
}

static bool need_loop(void)
{
	if (loop)
		return true;
	loop = aeconn_loop_new();
	if (!loop) {
		log_error("aeconn: %s", aeconn_error());
		return false;
	}
	event_assign(&loop_event, pgb_event_base, aeconn_descriptor(loop), EV_READ | EV_PERSIST,
		     on_ready, NULL);
	if (aeconn_descriptor(loop) < 0 || event_add(&loop_event, NULL) < 0) {
		log_error("aeconn: event_add: %s", strerror(errno));
		aeconn_loop_free(loop);
		loop = NULL;
		return false;
	}
	aeconn_on_fallback(on_fallback, NULL);
	atexit(end_loop);
	return true;
}

void aeconn_reload(void)
{
	if (aeconn_reload_tls() < 0)
		log_error("aeconn: the certificates in use stay: %s", aeconn_error());
}

/*
 * links
 */

typedef size_t (*AddressFn)(const aeconn_conn *conn, char *host, size_t size, uint16_t *port);

/*
 * A path of a Unix socket is chosen by the peer and is no address, even if it looks like one; an
 * address with a port is known there from a PROXY header only. An address that pgbouncer cannot
 * hold (vsock) becomes 0.0.0.0.
 */
static void set_address(PgAddr *addr, const aeconn_conn *conn, AddressFn get, bool is_path)
{
	char host[PGADDR_BUF] = "";
	uint16_t port = 0;

	get(conn, host, sizeof(host), &port);
	host[strcspn(host, "%")] = 0;	/* IPv6 zone */
	if (is_path && port == 0)
		pga_set(addr, AF_UNIX, cf_listen_port);
	else if (inet_pton(AF_INET, host, &addr->sin.sin_addr) != 1
		 && inet_pton(AF_INET6, host, &addr->sin6.sin6_addr) != 1)
		pga_set(addr, AF_INET, port);
	else
		pga_pton(addr, host, port);
}

static void on_ended(void *context, int error, const char *why)
{
	struct AeconnLink *link = context;

	if (link->held && error && error != ECANCELED)
		log_info("%s was cut: %s", link->path, why);
	link->open = false;
	if (!link->held)
		free(link);
}

/* Returns the descriptor of a connection, which then is the link's; -1, and closes it. */
static int become_descriptor(aeconn_conn *conn, struct AeconnLink *link)
{
	const char *base;
	bool is_path;
	int fd;

	strlcpy(link->transport, aeconn_transport(conn), sizeof(link->transport));
	aeconn_path(conn, link->path, sizeof(link->path));
	base = strrchr(link->transport, '+');
	base = base ? base + 1 : link->transport;
	is_path = strcmp(base, "unix") == 0 || strcmp(base, "shm") == 0;
	set_address(&link->remote, conn, aeconn_peer, is_path);
	set_address(&link->local, conn, aeconn_local, is_path);
	if (pga_is_unix(&link->remote)) {
		pid_t pid = 0;
		uid_t uid = -1;
		aeconn_peer_credentials(conn, &pid, &uid, NULL);
		link->remote.scred.pid = pid;
		link->remote.scred.uid = uid;
	}

	fd = aeconn_to_fd(conn, on_ended, link);
	if (fd < 0) {
		log_error("%s: %s", link->path, aeconn_error());
		aeconn_close(conn);
		return -1;
	}
	link->open = true;
	if (!tune_socket(fd, true)) {
		safe_close(fd);
		return -1;
	}
	return fd;
}

void aeconn_link_accepted(struct AeconnLink *link, PgSocket *client)
{
	client->sbuf.aeconn = link;
	client->remote_addr = link->remote;
	client->local_addr = link->local;
}

void aeconn_link_release(struct AeconnLink *link)
{
	if (!link)
		return;
	aeconn_close(link->dialled);
	link->held = false;
	if (!link->open)
		free(link);
}

bool aeconn_link_is_tls(const struct AeconnLink *link)
{
	return link && strncmp(link->transport, "tls", 3) == 0;
}

const char *aeconn_link_host(const struct AeconnLink *link)
{
	return link->host;
}

const char *aeconn_link_transport(const struct AeconnLink *link)
{
	return link->transport;
}

/*
 * clients
 */

static void on_accepted(void *context, aeconn_conn *conn)
{
	struct AeconnLink *link = calloc(1, sizeof(*link));
	PgSocket *client;
	int fd;

	if (!link) {
		log_error("no memory for a client");
		aeconn_close(conn);
		return;
	}
	link->held = true;
	fd = become_descriptor(conn, link);
	if (fd < 0) {
		aeconn_link_release(link);
		return;
	}
	client = accept_client(fd, true, link);
	if (client)
		slog_debug(client, "P: got connection: %s", link->path);
}

static void on_refused(void *context, const char *why)
{
	log_warning("%s", why);
}

static void on_not_served(void *context, const char *scheme, const char *why)
{
	log_warning("not listening on %s: %s", scheme, why);
}

int aeconn_setup(void)
{
	char *urls, *url, *rest;

	if (!*cf_aeconn_listen)
		return 0;
	if (!need_loop())
		die("aeconn_listen is not possible");
	rest = urls = xstrdup(cf_aeconn_listen);
	while ((url = strsep(&rest, " \t")) != NULL) {
		aeconn_listener *listener;
		const char *at;
		if (!*url)
			continue;
		listener = aeconn_listen(loop, url, on_accepted, NULL);
		if (!listener)
			die("aeconn_listen = %s: %s", url, aeconn_error());
		aeconn_listener_on_refused(listener, on_refused, NULL);
		aeconn_listener_not_served(listener, on_not_served, NULL);
		for (size_t i = 0; (at = aeconn_listener_url(listener, i)) != NULL; i++)
			log_info("listening on %s", at);
		listeners = realloc(listeners, (listener_count + 1) * sizeof(*listeners));
		if (!listeners)
			die("out of memory");
		listeners[listener_count++] = listener;
	}
	free(urls);
	return listener_count;
}

void aeconn_pause(bool pause)
{
	for (int i = 0; i < listener_count; i++) {
		if (pause)
			aeconn_listener_pause(listeners[i]);
		else
			aeconn_listener_resume(listeners[i]);
	}
}

void aeconn_stop_listening(void)
{
	while (listener_count > 0)
		aeconn_listener_free(listeners[--listener_count]);
	free(listeners);
	listeners = NULL;
}

/*
 * servers
 */

bool aeconn_is_url(const char *host)
{
	return host && strstr(host, "://") != NULL;
}

static void remember_host(struct AeconnLink *link, const char *url)
{
	const char *host = strstr(url, "://") + 3;
	const char *end = host + strcspn(host, "/?");

	if (*host == '[') {
		host++;
		end = host + strcspn(host, "]");
	} else {
		for (const char *p = host; p < end; p++) {
			if (*p == ':')
				end = p;
		}
	}
	snprintf(link->host, sizeof(link->host), "%.*s", (int)(end - host), host);
}

static void on_connected(void *context, aeconn_conn *conn)
{
	struct AeconnLink *link = context;
	PgSocket *server = link->server;
	int fd;

	link->dialled = NULL;
	if (aeconn_get_state(conn) != AECONN_CONNECTED) {
		slog_warning(server, "%s", aeconn_last_error(conn));
		aeconn_close(conn);
		disconnect_server(server, false, "connect failed");
		return;
	}
	fd = become_descriptor(conn, link);
	if (fd < 0) {
		disconnect_server(server, false, "connect failed");
		return;
	}
	server->remote_addr = link->remote;
	server->local_addr = link->local;
	slog_debug(server, "connected: %s", link->path);
	sbuf_connected(&server->sbuf, fd);
}

void aeconn_connect_server(PgSocket *server, const char *url)
{
	struct AeconnLink *link = calloc(1, sizeof(*link));

	if (!link || !need_loop()) {
		free(link);
		disconnect_server(server, false, "cannot connect");
		return;
	}
	remember_host(link, url);
	link->held = true;
	link->server = server;
	link->dialled = aeconn_connect(loop, url, on_connected, link);
	if (!link->dialled) {
		slog_error(server, "host=%s: %s", url, aeconn_error());
		free(link);
		disconnect_server(server, false, "cannot connect");
		return;
	}
	server->sbuf.aeconn = link;
}
