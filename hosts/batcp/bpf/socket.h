/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The contexts of programs on sockets, as far as BATCP's programs use them; constants of linux/bpf.h and tcp.h. */
#pragma once

#include "kernel.h"

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
} __attribute__((preserve_access_index));

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 local_ip4;
	__u32 local_ip6[4];
	__u32 local_port;
	__u32 bpf_sock_ops_cb_flags;
	struct bpf_sock *sk;
	void *skb_data;
	void *skb_data_end;
	__u32 skb_tcp_flags;
} __attribute__((preserve_access_index));

struct bpf_sock_addr {
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 type;
	__u32 protocol;
	struct bpf_sock *sk;
} __attribute__((preserve_access_index));

enum {
	BPF_SOCK_OPS_TCP_CONNECT_CB = 3,
	BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4,
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_TCP_LISTEN_CB = 11,
	BPF_SOCK_OPS_HDR_OPT_LEN_CB = 14,
	BPF_SOCK_OPS_WRITE_HDR_OPT_CB = 15,
};

#define BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG (1 << 6)
#define BPF_WRITE_HDR_TCP_SYNACK_COOKIE 2
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_LPM_TRIE 11
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC (1 << 0)
#define BPF_F_CLONE (1 << 9)
#define BPF_SK_STORAGE_GET_F_CREATE 1
#define BPF_ANY 0

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define SOL_TCP 6
#define TCP_SAVE_SYN 27
#define TCP_BPF_SYN 1005
#define TCPHDR_SYN 0x02
#define TCPHDR_ACK 0x10
