/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Lists the sockets of one network namespace that use one of these congestion controls, with its private state. Reading
 * the iterator costs the sockets nothing. */
#include "cc.h"

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} __attribute__((preserve_access_index));

/* src/cc/status.rs has the same struct. */
struct record {
	u64 cookie;
	u64 private[CA_PRIVATE_SIZE / sizeof(u64)];
	char control[CA_NAME_MAX];
	__be32 local[4], remote[4]; /* of IPv6, or IPv4 in the first word */
	u32 cwnd, ssthresh, srtt_us, mss;
	u16 family, local_port, remote_port;
	u8 tcp_state, ca_state;
};

SEC("iter/tcp")
int sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp = common ? bpf_skc_to_tcp_sock(common) : NULL;
	struct record r = {};

	if (!tp)
		return 0;
	BPF_CORE_READ_STR_INTO(&r.control, tp, inet_conn.icsk_ca_ops, name);
	if (r.control[0] != 'b' || r.control[1] != 'p' || r.control[2] != 'f' || r.control[3] != '_')
		return 0;
	r.cookie = bpf_get_socket_cookie(common);
	r.family = common->skc_family;
	r.local_port = common->skc_num;
	r.remote_port = bpf_ntohs(common->skc_dport);
	r.tcp_state = common->skc_state;
	if (r.family == 2) {
		r.local[0] = common->skc_rcv_saddr;
		r.remote[0] = common->skc_daddr;
	} else {
		for (int i = 0; i < 4; i++) {
			r.local[i] = common->skc_v6_rcv_saddr.in6_u.u6_addr32[i];
			r.remote[i] = common->skc_v6_daddr.in6_u.u6_addr32[i];
		}
	}
	r.ca_state = tp->inet_conn.icsk_ca_state;
	r.cwnd = tp->snd_cwnd;
	r.ssthresh = tp->snd_ssthresh;
	r.srtt_us = tp->srtt_us >> 3;
	r.mss = tp->mss_cache;
	for (unsigned int i = 0; i < CA_PRIVATE_SIZE / sizeof(u64); i++)
		r.private[i] = tp->inet_conn.icsk_ca_priv[i];
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
