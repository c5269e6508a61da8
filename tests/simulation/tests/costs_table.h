#pragma once
// What costs_test.cc expects. The numbers of a row, in their order:
//
//   slow calls of verbs, calls of rdma_cm, doorbells, requests sent, requests whose bytes are
//   fetched, requests for notification, completion events, registrations, keys, translation
//   entries, KiB pinned, completion queues, mappings of the provider
//
// and then the slow calls by name. What stands afterwards counts as more or less than before; the
// rows of idle connections have all that stands, and mappings of the process instead of calls.
// Before "connect" each machine has one connection; to "8 slow readers" the server writes 200,000
// bytes each, as far as one write takes them, and they do not read for a second.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

using CostNumbers = std::array<std::int64_t, 13>;

struct CostRow {
  std::string_view profile, what;
  CostNumbers numbers;
  std::string_view calls;
};

// clang-format off
inline const std::vector<CostRow> kCostRows = {
    {"rxe", "connect, server",
     {6, 6, 2, 2, 0, 2, 2, 1, 2, 16, 64, 0, 1},
     "alloc_mw 1, create_qp 1, modify_qp 3, reg_mr 1, rdma_accept 1, "
     "rdma_get_cm_event 2, rdma_init_qp_attr 3"},
    {"rxe", "connect, client",
     {6, 11, 2, 2, 0, 2, 2, 1, 2, 16, 64, 0, 1},
     "alloc_mw 1, create_qp 1, modify_qp 3, reg_mr 1, rdma_connect 1, rdma_create_id 1, "
     "rdma_establish 1, rdma_get_cm_event 3, rdma_init_qp_attr 3, rdma_resolve_addr 1, "
     "rdma_resolve_route 1"},
    {"rxe", "1000 requests, server",
     {0, 0, 1018, 1009, 0, 1062, 1062, 0, 0, 0, 0, 0, 0},
     ""},
    {"rxe", "1000 requests, client",
     {0, 0, 1021, 1009, 0, 1065, 1065, 0, 0, 0, 0, 0, 0},
     ""},
    {"rxe", "4 MiB, the window grows, server",
     {20, 0, 18, 18, 0, 29, 29, 0, 0, 480, 1920, 0, 0},
     "alloc_mw 5, dealloc_mw 5, dereg_mr 5, reg_mr 5"},
    {"rxe", "4 MiB, the window grows, client",
     {0, 0, 19, 20, 20, 27, 26, 0, 0, 0, 0, 0, 0},
     ""},
    {"rxe", "close, server",
     {7, 3, 1, 1, 0, 1, 1, -2, -4, -512, -2048, 0, -1},
     "dealloc_mw 2, dereg_mr 2, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"rxe", "close, client",
     {7, 3, 1, 1, 0, 1, 1, -2, -4, -32, -128, 0, -1},
     "dealloc_mw 2, dereg_mr 2, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"rxe", "8 slow readers, server",
     {2, 0, 25, 24, 24, 25, 25, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"rxe", "8 slow readers, client",
     {64, 0, 49, 48, 0, 42, 42, 0, 0, 128, 512, 0, 0},
     "alloc_mw 16, dealloc_mw 16, dereg_mr 16, reg_mr 16"},
    {"rxe", "the same 30 s later, server",
     {2, 0, 25, 24, 24, 29, 29, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"rxe", "the same 30 s later, client",
     {32, 0, 33, 32, 0, 32, 32, 0, 0, 0, 0, 0, 0},
     "alloc_mw 8, dealloc_mw 8, dereg_mr 8, reg_mr 8"},
    {"mlx5", "connect, server",
     {6, 6, 2, 2, 0, 2, 2, 1, 2, 16, 64, 0, 0},
     "alloc_mw 1, create_qp 1, modify_qp 3, reg_mr 1, rdma_accept 1, "
     "rdma_get_cm_event 2, rdma_init_qp_attr 3"},
    {"mlx5", "connect, client",
     {6, 11, 2, 2, 0, 2, 2, 1, 2, 16, 64, 0, 0},
     "alloc_mw 1, create_qp 1, modify_qp 3, reg_mr 1, rdma_connect 1, rdma_create_id 1, "
     "rdma_establish 1, rdma_get_cm_event 3, rdma_init_qp_attr 3, rdma_resolve_addr 1, "
     "rdma_resolve_route 1"},
    {"mlx5", "1000 requests, server",
     {0, 0, 1018, 1009, 0, 1062, 1062, 0, 0, 0, 0, 0, 0},
     ""},
    {"mlx5", "1000 requests, client",
     {0, 0, 1021, 1009, 0, 1065, 1065, 0, 0, 0, 0, 0, 0},
     ""},
    {"mlx5", "4 MiB, the window grows, server",
     {20, 0, 18, 18, 0, 29, 29, 0, 0, 480, 1920, 0, 0},
     "alloc_mw 5, dealloc_mw 5, dereg_mr 5, reg_mr 5"},
    {"mlx5", "4 MiB, the window grows, client",
     {0, 0, 19, 20, 20, 27, 26, 0, 0, 0, 0, 0, 0},
     ""},
    {"mlx5", "close, server",
     {7, 3, 1, 1, 0, 1, 1, -2, -4, -512, -2048, 0, 0},
     "dealloc_mw 2, dereg_mr 2, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"mlx5", "close, client",
     {7, 3, 1, 1, 0, 1, 1, -2, -4, -32, -128, 0, 0},
     "dealloc_mw 2, dereg_mr 2, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"mlx5", "8 slow readers, server",
     {2, 0, 25, 24, 24, 25, 25, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"mlx5", "8 slow readers, client",
     {64, 0, 49, 48, 0, 42, 42, 0, 0, 128, 512, 0, 0},
     "alloc_mw 16, dealloc_mw 16, dereg_mr 16, reg_mr 16"},
    {"mlx5", "the same 30 s later, server",
     {2, 0, 25, 24, 24, 29, 29, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"mlx5", "the same 30 s later, client",
     {32, 0, 33, 32, 0, 32, 32, 0, 0, 0, 0, 0, 0},
     "alloc_mw 8, dealloc_mw 8, dereg_mr 8, reg_mr 8"},
    {"bnxt_re", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_alloc_mw: Operation not supported"},
    {"irdma-e810", "connect, server",
     {9, 6, 5, 1, 1, 1, 1, 3, 3, 19, 76, 0, 0},
     "alloc_pd 1, create_qp 2, modify_qp 3, reg_mr 3, rdma_accept 1, "
     "rdma_get_cm_event 2, rdma_init_qp_attr 3"},
    {"irdma-e810", "connect, client",
     {9, 11, 5, 1, 1, 1, 1, 3, 3, 19, 76, 0, 0},
     "alloc_pd 1, create_qp 2, modify_qp 3, reg_mr 3, rdma_connect 1, rdma_create_id 1, "
     "rdma_establish 1, rdma_get_cm_event 3, rdma_init_qp_attr 3, rdma_resolve_addr 1, "
     "rdma_resolve_route 1"},
    {"irdma-e810", "1000 requests, server",
     {0, 0, 1034, 1009, 1009, 1059, 1059, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-e810", "1000 requests, client",
     {0, 0, 1037, 1009, 1009, 1062, 1062, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-e810", "4 MiB, the window grows, server",
     {10, 0, 8, 8, 8, 19, 19, 0, 0, 480, 1920, 0, 0},
     "dereg_mr 5, reg_mr 5"},
    {"irdma-e810", "4 MiB, the window grows, client",
     {5, 0, 19, 69, 69, 26, 25, 5, 5, 80, 320, 0, 0},
     "reg_mr 5"},
    {"irdma-e810", "close, server",
     {9, 3, 1, 1, 0, 1, 1, -5, -5, -531, -2124, 0, 0},
     "dealloc_pd 1, dereg_mr 5, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"irdma-e810", "close, client",
     {14, 3, 1, 1, 0, 1, 1, -10, -10, -131, -524, 0, 0},
     "dealloc_pd 1, dereg_mr 10, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"irdma-e810", "8 slow readers, server",
     {32, 0, 24, 32, 32, 27, 27, 32, 32, 512, 2048, 0, 0},
     "reg_mr 32"},
    {"irdma-e810", "8 slow readers, client",
     {32, 0, 16, 16, 16, 20, 20, 0, 0, 128, 512, 0, 0},
     "dereg_mr 16, reg_mr 16"},
    {"irdma-e810", "the same 30 s later, server",
     {0, 0, 24, 24, 24, 23, 23, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-e810", "the same 30 s later, client",
     {16, 0, 16, 16, 16, 18, 18, 0, 0, 0, 0, 0, 0},
     "dereg_mr 8, reg_mr 8"},
    {"irdma-gen3", "connect, server",
     {8, 6, 2, 2, 1, 2, 2, 2, 3, 17, 68, 0, 0},
     "alloc_mw 1, create_qp 2, modify_qp 3, reg_mr 2, rdma_accept 1, "
     "rdma_get_cm_event 2, rdma_init_qp_attr 3"},
    {"irdma-gen3", "connect, client",
     {8, 11, 2, 2, 1, 2, 2, 2, 3, 17, 68, 0, 0},
     "alloc_mw 1, create_qp 2, modify_qp 3, reg_mr 2, rdma_connect 1, rdma_create_id 1, "
     "rdma_establish 1, rdma_get_cm_event 3, rdma_init_qp_attr 3, rdma_resolve_addr 1, "
     "rdma_resolve_route 1"},
    {"irdma-gen3", "1000 requests, server",
     {0, 0, 1018, 1009, 1009, 1062, 1062, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-gen3", "1000 requests, client",
     {0, 0, 1021, 1009, 1009, 1065, 1065, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-gen3", "4 MiB, the window grows, server",
     {20, 0, 18, 18, 8, 29, 29, 0, 0, 480, 1920, 0, 0},
     "alloc_mw 5, dealloc_mw 5, dereg_mr 5, reg_mr 5"},
    {"irdma-gen3", "4 MiB, the window grows, client",
     {0, 0, 19, 21, 21, 27, 26, 0, 0, 0, 0, 0, 0},
     ""},
    {"irdma-gen3", "close, server",
     {8, 3, 1, 1, 0, 1, 1, -3, -5, -513, -2052, 0, 0},
     "dealloc_mw 2, dereg_mr 3, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"irdma-gen3", "close, client",
     {8, 3, 1, 1, 0, 1, 1, -3, -5, -33, -132, 0, 0},
     "dealloc_mw 2, dereg_mr 3, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"irdma-gen3", "8 slow readers, server",
     {2, 0, 25, 24, 24, 31, 31, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"irdma-gen3", "8 slow readers, client",
     {64, 0, 49, 48, 16, 43, 43, 0, 0, 128, 512, 0, 0},
     "alloc_mw 16, dealloc_mw 16, dereg_mr 16, reg_mr 16"},
    {"irdma-gen3", "the same 30 s later, server",
     {2, 0, 25, 24, 24, 29, 29, 2, 2, 512, 2048, 0, 0},
     "reg_mr 2"},
    {"irdma-gen3", "the same 30 s later, client",
     {32, 0, 33, 32, 16, 32, 32, 0, 0, 0, 0, 0, 0},
     "alloc_mw 8, dealloc_mw 8, dereg_mr 8, reg_mr 8"},
    {"erdma", "connect, server",
     {9, 6, 5, 1, 1, 1, 1, 3, 3, 19, 76, 0, 0},
     "alloc_pd 1, create_qp 2, modify_qp 3, reg_mr 3, rdma_accept 1, "
     "rdma_get_cm_event 2, rdma_init_qp_attr 3"},
    {"erdma", "connect, client",
     {9, 10, 5, 1, 1, 1, 1, 3, 3, 19, 76, 0, 0},
     "alloc_pd 1, create_qp 2, modify_qp 3, reg_mr 3, rdma_connect 1, rdma_create_id 1, "
     "rdma_get_cm_event 3, rdma_init_qp_attr 3, rdma_resolve_addr 1, "
     "rdma_resolve_route 1"},
    {"erdma", "1000 requests, server",
     {0, 0, 1033, 1009, 1009, 1068, 1068, 0, 0, 0, 0, 0, 0},
     ""},
    {"erdma", "1000 requests, client",
     {0, 0, 1037, 1009, 1009, 1060, 1060, 0, 0, 0, 0, 0, 0},
     ""},
    {"erdma", "4 MiB, the window grows, server",
     {10, 0, 8, 8, 8, 20, 20, 0, 0, 480, 1920, 0, 0},
     "dereg_mr 5, reg_mr 5"},
    {"erdma", "4 MiB, the window grows, client",
     {5, 0, 20, 71, 71, 28, 27, 5, 5, 80, 320, 0, 0},
     "reg_mr 5"},
    {"erdma", "close, server",
     {9, 3, 1, 1, 0, 1, 1, -5, -5, -531, -2124, 0, 0},
     "dealloc_pd 1, dereg_mr 5, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"erdma", "close, client",
     {14, 3, 1, 1, 0, 1, 1, -10, -10, -131, -524, 0, 0},
     "dealloc_pd 1, dereg_mr 10, destroy_qp 1, modify_qp 1, query_port 1, "
     "rdma_destroy_id 1, rdma_disconnect 1, rdma_get_cm_event 1"},
    {"erdma", "8 slow readers, server",
     {32, 0, 24, 32, 32, 21, 21, 32, 32, 512, 2048, 0, 0},
     "reg_mr 32"},
    {"erdma", "8 slow readers, client",
     {32, 0, 16, 16, 16, 21, 21, 0, 0, 128, 512, 0, 0},
     "dereg_mr 16, reg_mr 16"},
    {"erdma", "the same 30 s later, server",
     {0, 0, 24, 24, 24, 22, 22, 0, 0, 0, 0, 0, 0},
     ""},
    {"erdma", "the same 30 s later, client",
     {16, 0, 16, 16, 16, 18, 18, 0, 0, 0, 0, 0, 0},
     "dereg_mr 8, reg_mr 8"},
    {"hns", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_alloc_mw: Operation not supported"},
    {"iwarp", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_modify_qp (RTR): Input/output error"},
    {"rxe", "10000 idle, server",
     {60042, 60005, 20326, 20000, 0, 154, 142, 10001, 20001, 160032, 640128, 12, 10013},
     "2.0 process mappings for each end"},
    {"mlx5", "10000 idle, server",
     {60014, 60005, 20329, 20000, 0, 141, 140, 10001, 20001, 160032, 640128, 1, 0},
     "2.0 process mappings for each end"},
    {"bnxt_re", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_alloc_mw: Operation not supported"},
    {"irdma-e810", "1000 idle, server",
     {9012, 6005, 5000, 1000, 1000, 127, 126, 3000, 3000, 19000, 76000, 1, 0},
     "6.0 process mappings for each end"},
    {"irdma-gen3", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "Connection refused by the server: mapping 4096 bytes: Cannot allocate memory"},
    {"erdma", "1000 idle, server",
     {9146, 6005, 5000, 1000, 1000, 613, 470, 3000, 3000, 19000, 76000, 143, 143},
     "6.0 process mappings for each end"},
    {"hns", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_alloc_mw: Operation not supported"},
    {"iwarp", "no connection",
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
     "ibv_modify_qp (RTR): Input/output error"},
};
// clang-format on
