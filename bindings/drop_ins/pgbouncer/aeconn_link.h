/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of aeconn in pgbouncer: clients that connect to the URLs of the setting aeconn_listen,
 * and servers whose host= is a URL. Each becomes a descriptor (aeconn_to_fd()), which pgbouncer
 * reads, writes and polls as a socket of its own. aeconn's loop is polled by pgbouncer's. */

struct AeconnLink; /* a connection of an SBuf; its member `aeconn`, NULL for a socket of pgbouncer */

extern char *cf_aeconn_listen; /* URLs, separated by spaces */

/* Listens on cf_aeconn_listen, and returns on how many URLs. Ends the process, with a sentence, if
 * that is not possible. */
int aeconn_setup(void);
/* Pauses or resumes accepting. */
void aeconn_pause(bool pause);
/* Closes the listeners. */
void aeconn_stop_listening(void);
/* Reads the files named in URLs again, for new connections. */
void aeconn_reload(void);

/* Whether the host of a database is a URL. */
bool aeconn_is_url(const char *host);
/* Connects a server; continues with sbuf_connected() or disconnect_server(). */
void aeconn_connect_server(PgSocket *server, const char *url);

/* Gives a link to the SBuf of an accepted client, and sets the client's addresses. */
void aeconn_link_accepted(struct AeconnLink *link, PgSocket *client);
/* The SBuf has closed its descriptor, or connects no longer. NULL is ignored. */
void aeconn_link_release(struct AeconnLink *link);
/* Whether the transport is TLS: then pgbouncer does without TLS of its own. */
bool aeconn_link_is_tls(const struct AeconnLink *link);
/* Host of a server's URL, as long as the link. */
const char *aeconn_link_host(const struct AeconnLink *link);
/* Name of the transport, "tls+rdma". */
const char *aeconn_link_transport(const struct AeconnLink *link);
