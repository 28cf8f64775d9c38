/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Redirects the TCP connects of a cgroup, in one network namespace, to a proxy on loopback, and records their original
 * destinations for the proxy. No netfilter. Addresses are IPv6 throughout, IPv4 as ::ffff:a.b.c.d. */
#include "kernel.h"
#include "socket.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct endpoint {
	__u32 address[4]; /* network order */
	__u32 port;	  /* host order */
};

struct prefix {
	__u32 length; /* bits */
	__u32 address[4];
};

const volatile __u64 netns;	/* cookie of the proxy's namespace */
const volatile __u16 port_ipv4; /* the proxy's on 127.0.0.1, host order */
const volatile __u16 port_ipv6; /* on ::1; 0: IPv6 is not caught */

/* Destinations to catch, those among them not to, and single ones not to: the remote proxy. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u8);
} only SEC(".maps"), spared SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct endpoint);
	__type(value, __u8);
} except SEC(".maps");

/* Original destination of a caught socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct endpoint);
} wanted SEC(".maps");

/* Original destinations by the socket's own address, which the proxy sees as that of its peer. The proxy deletes the
 * entries that it reads; those of connects that it never accepted fall out as the oldest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct endpoint);
	__type(value, struct endpoint);
} originals SEC(".maps");

#define bpf_htonl(x) __builtin_bswap32(x)
#define MAPPED bpf_htonl(0xffff)
#define LOOPBACK_IPV4 bpf_htonl(0x7f000001)

/* Loopback, unspecified or link-local: a matter of this host and its links. */
static __always_inline bool is_local(const struct endpoint *to)
{
	const __u32 *a = to->address;

	if ((a[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
		return true;
	if (a[0] || a[1])
		return false;
	if (a[2] == MAPPED)
		return !a[3] || (a[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000) ||
		       (a[3] & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
	return !a[2] && (!a[3] || a[3] == bpf_htonl(1));
}

static __always_inline bool is_meant(struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	struct prefix prefix = {.length = 128};

	__builtin_memcpy(prefix.address, to->address, sizeof(prefix.address));
	return !is_local(to) && bpf_map_lookup_elem(&only, &prefix) && !bpf_map_lookup_elem(&spared, &prefix) &&
	       !bpf_map_lookup_elem(&except, to);
}

/* Returns true if the socket's connect to `to` is caught, and records its destination. */
static __always_inline bool catch(struct bpf_sock_addr *ctx, struct endpoint *to)
{
	struct bpf_sock *sk = ctx->sk;
	struct endpoint *noted;

	if (ctx->protocol != IPPROTO_TCP || !sk || bpf_get_netns_cookie(ctx) != netns)
		return false;
	/* A socket that chose an interface keeps it. */
	if (sk->bound_dev_if || !is_meant(ctx, to)) {
		bpf_sk_storage_delete(&wanted, sk); /* of an earlier connect */
		return false;
	}
	noted = bpf_sk_storage_get(&wanted, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!noted)
		return false;
	*noted = *to;
	return true;
}

SEC("cgroup/connect4")
int batcp_connect4(struct bpf_sock_addr *ctx)
{
	struct endpoint to = {.address = {0, 0, MAPPED, ctx->user_ip4}, .port = __builtin_bswap16(ctx->user_port)};

	if (catch(ctx, &to)) {
		ctx->user_ip4 = LOOPBACK_IPV4;
		ctx->user_port = __builtin_bswap16(port_ipv4);
	}
	return 1;
}

SEC("cgroup/connect6")
int batcp_connect6(struct bpf_sock_addr *ctx)
{
	struct endpoint to = {.port = __builtin_bswap16(ctx->user_port)};
	bool mapped;

	to.address[0] = ctx->user_ip6[0];
	to.address[1] = ctx->user_ip6[1];
	to.address[2] = ctx->user_ip6[2];
	to.address[3] = ctx->user_ip6[3];
	mapped = !to.address[0] && !to.address[1] && to.address[2] == MAPPED;
	if ((!mapped && !port_ipv6) || !catch(ctx, &to))
		return 1;
	ctx->user_ip6[0] = 0;
	ctx->user_ip6[1] = 0;
	ctx->user_ip6[2] = mapped ? MAPPED : 0;
	ctx->user_ip6[3] = mapped ? LOOPBACK_IPV4 : bpf_htonl(1);
	ctx->user_port = __builtin_bswap16(mapped ? port_ipv4 : port_ipv6);
	return 1;
}

/* The program that connected sees the peer that it asked for. */
static __always_inline struct endpoint *noted(struct bpf_sock_addr *ctx)
{
	return ctx->sk ? bpf_sk_storage_get(&wanted, ctx->sk, 0, 0) : NULL;
}

SEC("cgroup/getpeername4")
int batcp_getpeername4(struct bpf_sock_addr *ctx)
{
	struct endpoint *to = noted(ctx);

	if (to) {
		ctx->user_ip4 = to->address[3];
		ctx->user_port = __builtin_bswap16(to->port);
	}
	return 1;
}

SEC("cgroup/getpeername6")
int batcp_getpeername6(struct bpf_sock_addr *ctx)
{
	struct endpoint *to = noted(ctx);

	if (to) {
		ctx->user_ip6[0] = to->address[0];
		ctx->user_ip6[1] = to->address[1];
		ctx->user_ip6[2] = to->address[2];
		ctx->user_ip6[3] = to->address[3];
		ctx->user_port = __builtin_bswap16(to->port);
	}
	return 1;
}

/* A caught socket has its own address and port now, and its SYN is not yet sent. */
SEC("sockops")
int batcp_originals(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;
	struct endpoint own = {}, *to;
	__u32 ipv4;

	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB || !sk || bpf_get_netns_cookie(ops) != netns)
		return 1;
	to = bpf_sk_storage_get(&wanted, sk, 0, 0);
	if (!to)
		return 1;
	own.port = ops->local_port;
	ipv4 = ops->local_ip4;
	barrier_var(ipv4); /* the verifier knows no loads that are shared by both branches */
	if (ops->family == AF_INET) {
		own.address[2] = MAPPED;
		own.address[3] = ipv4;
	} else {
		own.address[0] = ops->local_ip6[0];
		own.address[1] = ops->local_ip6[1];
		own.address[2] = ops->local_ip6[2];
		own.address[3] = ops->local_ip6[3];
	}
	bpf_map_update_elem(&originals, &own, to, BPF_ANY);
	return 1;
}
