/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* A link that marks: of the packets that may be, SHARE of 2^32 get Congestion Experienced (RFC 3168), at random. */
#include <linux/bpf.h>

static unsigned int (*const random_u32)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*const set_ce)(struct __sk_buff *) = (void *)BPF_FUNC_skb_ecn_set_ce;

__attribute__((section("tc"), used)) int mark(struct __sk_buff *packet)
{
	if (random_u32() < SHARE)
		set_ce(packet);
	return 0; /* TC_ACT_OK */
}

__attribute__((section("license"), used)) char LICENSE[] = "GPL";
