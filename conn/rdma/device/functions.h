// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Includes the headers of libibverbs and librdmacm, and gives the functions that this library calls
// other names for the linker, for example aeconn_0_3_ibv_open_device. libraries.cc defines the
// functions with the new names. So a program that links libaeconn.a may call or define functions of
// libibverbs and librdmacm without affecting this library. (In a build with RDMA=link, this library
// calls the functions that the program is linked with.) The compiler and debuggers still see the
// usual names. A file that calls these functions must include this header before the headers of the
// two libraries. tests/install/run finds functions that are missing from this list.

#include "ae/abi.h"

#define AECONN_PRAGMA_TEXT(text) _Pragma(#text)
#define AECONN_PRAGMA(text) AECONN_PRAGMA_TEXT(text)
#define AECONN_JOINED(first, second) first##_##second
#define AECONN_JOIN(first, second) AECONN_JOINED(first, second)
#define AECONN_RENAME(name) AECONN_PRAGMA(redefine_extname name AECONN_JOIN(AECONN_ABI, name))

AECONN_RENAME(ibv_fork_init)
AECONN_RENAME(ibv_open_device)
AECONN_RENAME(ibv_close_device)
AECONN_RENAME(ibv_get_device_name)
AECONN_RENAME(ibv_query_device)
AECONN_RENAME(ibv_query_port)
AECONN_RENAME(_ibv_query_gid_ex)
AECONN_RENAME(ibv_query_pkey)
AECONN_RENAME(ibv_get_async_event)
AECONN_RENAME(ibv_ack_async_event)
AECONN_RENAME(ibv_event_type_str)
AECONN_RENAME(ibv_wc_status_str)
AECONN_RENAME(ibv_alloc_pd)
AECONN_RENAME(ibv_dealloc_pd)
AECONN_RENAME(ibv_reg_mr)
AECONN_RENAME(ibv_reg_mr_iova2)
AECONN_RENAME(ibv_dereg_mr)
AECONN_RENAME(ibv_create_comp_channel)
AECONN_RENAME(ibv_destroy_comp_channel)
AECONN_RENAME(ibv_create_cq)
AECONN_RENAME(ibv_destroy_cq)
AECONN_RENAME(ibv_get_cq_event)
AECONN_RENAME(ibv_ack_cq_events)
AECONN_RENAME(ibv_create_srq)
AECONN_RENAME(ibv_modify_srq)
AECONN_RENAME(ibv_destroy_srq)
AECONN_RENAME(ibv_create_qp)
AECONN_RENAME(ibv_modify_qp)
AECONN_RENAME(ibv_query_qp)
AECONN_RENAME(ibv_destroy_qp)
AECONN_RENAME(ibv_query_ece)
AECONN_RENAME(ibv_set_ece)

AECONN_RENAME(rdma_create_event_channel)
AECONN_RENAME(rdma_destroy_event_channel)
AECONN_RENAME(rdma_get_cm_event)
AECONN_RENAME(rdma_ack_cm_event)
AECONN_RENAME(rdma_event_str)
AECONN_RENAME(rdma_get_devices)
AECONN_RENAME(rdma_free_devices)
AECONN_RENAME(rdma_create_id)
AECONN_RENAME(rdma_destroy_id)
AECONN_RENAME(rdma_migrate_id)
AECONN_RENAME(rdma_set_option)
AECONN_RENAME(rdma_bind_addr)
AECONN_RENAME(rdma_listen)
AECONN_RENAME(rdma_resolve_addr)
AECONN_RENAME(rdma_resolve_route)
AECONN_RENAME(rdma_connect)
AECONN_RENAME(rdma_establish)
AECONN_RENAME(rdma_accept)
AECONN_RENAME(rdma_reject)
AECONN_RENAME(rdma_disconnect)
AECONN_RENAME(rdma_init_qp_attr)
AECONN_RENAME(rdma_set_local_ece)
AECONN_RENAME(rdma_get_remote_ece)

#undef AECONN_RENAME
#undef AECONN_JOIN
#undef AECONN_JOINED
#undef AECONN_PRAGMA
#undef AECONN_PRAGMA_TEXT

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
