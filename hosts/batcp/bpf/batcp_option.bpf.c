/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* BATCP's TCP option on SYN and SYN-ACK (paper 003, section 3): kind 254, length 8, six ASCII digits: two of the
 * interface's number, on the first SYN how many interfaces there are, four of the connection's id. The SYN-ACK repeats the digits of the SYN that it answers.
 *
 * Only sockets that user space put into `sockets` are touched. */
#include "kernel.h"
#include "socket.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define DIGITS 6
#define OPTION_KIND 254
#define OPTION_LEN (2 + DIGITS)
#define HEADER_MAX 60
/* A middlebox may drop SYNs with options that it does not know: the second retransmission goes without. */
#define SYNS_WITH_OPTION 2

enum role { ANNOUNCES = 1, ANSWERS = 2 };

struct handshake {
	__u8 role;
	__u8 agreed; /* the peer announced, or answered with our digits */
	__u8 syns;
	__u8 digits[DIGITS];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	/* An accepted socket gets a copy of its listener's entry. */
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct handshake);
} sockets SEC(".maps");

/* A SYN-ACK is made for a request, from which there is no way to the listener's entry in `sockets`. */
struct listener {
	__u64 netns;
	__u64 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct listener);
	__type(value, __u8);
} listeners SEC(".maps");

enum count {
	ANNOUNCED,  /* SYNs sent with the option */
	ACCEPTED,   /* connections whose peer's SYN-ACK repeated our digits */
	PLAIN,	    /* connections whose peer's SYN-ACK did not; accepted ones whose SYN had none, or a cookie */
	ANSWERED,   /* SYN-ACKs sent with the option */
	COOKIES,    /* SYN-ACKs sent without, as a SYN cookie keeps no option */
	MALFORMED,  /* SYNs and SYN-ACKs with an option 254 that is not six digits */
	DUPLICATE,  /* ... with more than one */
	MISMATCHED, /* SYN-ACKs with other digits than ours */
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} batcp_counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&batcp_counts, &which);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

/* A TCP header and what was found in it. */
struct parser {
	__u8 header[64];
	__u32 at, end;
	__u32 digits; /* where those of the last option of kind 254 are */
	bool found, again, wrong;
};

/* One option; 1 ends the loop. */
static long parse_one(__u64 index, struct parser *p)
{
	__u32 at = p->at;
	__u8 kind, len;

	if (at >= p->end || at >= HEADER_MAX)
		return 1;
	kind = p->header[at & 63];
	if (kind == 0)
		return 1;
	if (kind == 1) {
		p->at = at + 1;
		return 0;
	}
	len = p->header[(at + 1) & 63];
	if (at + 1 >= p->end || len < 2 || at + len > p->end || (kind == OPTION_KIND && len != OPTION_LEN)) {
		p->wrong = kind == OPTION_KIND;
		return 1;
	}
	p->at = at + len;
	if (kind == OPTION_KIND) {
		p->again = p->found; /* no count: the verifier would go through all its values */
		p->found = true;
		p->digits = at + 2;
	}
	return 0;
}

/* Finds the option in a TCP header. 0: found, in `digits`; 1: there is none; else what is wrong, an enum count. */
static __always_inline int parse(struct parser *p, __u8 digits[8])
{
	p->at = 20;
	p->end = (p->header[12] >> 4) * 4;
	bpf_loop(HEADER_MAX - 20, parse_one, p, 0);
	if (p->wrong)
		return MALFORMED;
	if (p->again)
		return DUPLICATE;
	if (!p->found)
		return 1;
	for (int i = 0; i < DIGITS; i++) {
		__u8 digit = p->header[(p->digits + i) & 63];

		if (digit < '0' || digit > '9')
			return MALFORMED;
		digits[i] = digit;
	}
	return 0;
}

/* The option of the SYN that a listener received. */
static __always_inline int parse_syn(struct bpf_sock_ops *ops, __u8 digits[8])
{
	struct parser parser = {};

	if (bpf_getsockopt(ops, SOL_TCP, TCP_BPF_SYN, parser.header, HEADER_MAX) < 20)
		return 1;
	return parse(&parser, digits);
}

/* The option of the SYN-ACK that is being processed. */
static __always_inline int parse_answer(struct bpf_sock_ops *ops, __u8 digits[8])
{
	const __u32 *data = ops->skb_data, *end = ops->skb_data_end;
	struct parser parser = {};

	for (int i = 0; i < HEADER_MAX / 4; i++) {
		if (data + i + 1 > end)
			break;
		((__u32 *)parser.header)[i] = data[i];
	}
	return parse(&parser, digits);
}

static __always_inline bool answers(struct bpf_sock_ops *ops)
{
	struct listener key = {.netns = bpf_get_netns_cookie(ops), .port = ops->local_port};

	return bpf_map_lookup_elem(&listeners, &key) != NULL;
}

static __always_inline struct handshake *entry(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&sockets, sk, 0, 0) : NULL;
}

/* Asks for the callbacks that reserve and write options, or ends them; other programs' flags stay. */
static __always_inline void write_options(struct bpf_sock_ops *ops, bool on)
{
	__u32 flags = ops->bpf_sock_ops_cb_flags;

	flags = on ? flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG : flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	bpf_sock_ops_cb_flags_set(ops, (int)flags);
}

static __always_inline void start_listening(struct bpf_sock_ops *ops)
{
	struct listener key = {.netns = bpf_get_netns_cookie(ops), .port = ops->local_port};
	int save = 1;
	__u8 one = 1;

	if (bpf_setsockopt(ops, SOL_TCP, TCP_SAVE_SYN, &save, sizeof(save)) ||
	    bpf_map_update_elem(&listeners, &key, &one, BPF_ANY))
		return;
	write_options(ops, true);
}

/* Returns true if the segment that is being made carries the option, with its digits. */
static __always_inline bool wanted(struct bpf_sock_ops *ops, __u8 digits[8], bool counted)
{
	struct handshake *socket;
	int result;

	if (ops->skb_tcp_flags == TCPHDR_SYN) {
		socket = entry(ops);
		if (!socket || socket->role != ANNOUNCES || socket->syns >= SYNS_WITH_OPTION)
			return false;
		__builtin_memcpy(digits, socket->digits, DIGITS);
		return true;
	}
	if (ops->skb_tcp_flags != (TCPHDR_SYN | TCPHDR_ACK) || !answers(ops))
		return false;
	result = parse_syn(ops, digits);
	if (result == 0 && ops->args[0] == BPF_WRITE_HDR_TCP_SYNACK_COOKIE)
		result = COOKIES;
	if (result > 1 && counted)
		count(result);
	return result == 0;
}

static __always_inline void reserve(struct bpf_sock_ops *ops)
{
	__u8 digits[8] = {};

	if (wanted(ops, digits, true))
		bpf_reserve_hdr_opt(ops, OPTION_LEN, 0);
}

static __always_inline void write(struct bpf_sock_ops *ops)
{
	struct {
		__u8 kind, len, digits[8];
	} option = {.kind = OPTION_KIND, .len = OPTION_LEN};
	bool syn = ops->skb_tcp_flags == TCPHDR_SYN;
	struct handshake *socket;

	if (!wanted(ops, option.digits, false) || bpf_store_hdr_opt(ops, &option, OPTION_LEN, 0))
		return;
	count(syn ? ANNOUNCED : ANSWERED);
	socket = entry(ops);
	if (socket)
		socket->syns++;
}

static __always_inline void connected(struct bpf_sock_ops *ops, struct handshake *socket)
{
	__u8 digits[8] = {};
	int result = parse_answer(ops, digits);

	write_options(ops, false);
	if (result == 0) {
		__u8 different = 0;

		for (int i = 0; i < DIGITS; i++)
			different |= digits[i] ^ socket->digits[i];
		if (different)
			result = MISMATCHED;
	}
	if (result > 1)
		count(result);
	socket->agreed = result == 0;
	count(socket->agreed ? ACCEPTED : PLAIN);
}

static __always_inline void accepted(struct bpf_sock_ops *ops, struct handshake *socket)
{
	__u8 digits[8] = {};

	write_options(ops, false);
	socket->agreed = parse_syn(ops, digits) == 0;
	if (!socket->agreed)
		count(PLAIN);
	__builtin_memcpy(socket->digits, digits, DIGITS);
}

SEC("sockops")
int batcp_option(struct bpf_sock_ops *ops)
{
	struct handshake *socket;

	switch (ops->op) {
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(ops);
		return 1;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(ops);
		return 1;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		break;
	default:
		return 1;
	}
	socket = entry(ops);
	if (!socket)
		return 1;
	if (ops->op == BPF_SOCK_OPS_TCP_CONNECT_CB && socket->role == ANNOUNCES)
		write_options(ops, true);
	else if (ops->op == BPF_SOCK_OPS_TCP_LISTEN_CB && socket->role == ANSWERS)
		start_listening(ops);
	else if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && socket->role == ANNOUNCES)
		connected(ops, socket);
	else if (ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && socket->role == ANSWERS)
		accepted(ops, socket);
	return 1;
}
