// SPDX-License-Identifier: Apache-2.0
/* Offers a batch of frames to an interface as a veth does: to the queue of what it receives. BPF_PROG_TEST_RUN runs it
 * with a packet of FRAME_BYTES on that interface. It is compiled with FRAMES, how many there are, FRAME_BYTES, and BATCH,
 * how many it offers. */

typedef unsigned char __u8;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_INGRESS 1

/* The kernel's, up to what is used here. */
struct __sk_buff {
	__u32 other[10];
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
};
enum { NEXT, TAKEN }; /* what cb holds: the number of the next frame; how many the interface took */

struct frame {
	__u8 bytes[FRAME_BYTES];
};

struct {
	int (*type)[BPF_MAP_TYPE_ARRAY];
	int (*max_entries)[FRAMES];
	__u32 *key;
	struct frame *value;
} frames SEC(".maps");

/* bpf-helpers(7) */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_skb_store_bytes)(struct __sk_buff *packet, __u32 offset, const void *from, __u32 length,
					 __u64 flags) = (void *)9;
static long (*const bpf_clone_redirect)(struct __sk_buff *packet, __u32 ifindex, __u64 flags) = (void *)13;

SEC("tc")
int inject(struct __sk_buff *packet)
{
	for (int i = 0; i < BATCH; i++) {
		__u32 number = packet->cb[NEXT];
		packet->cb[NEXT] = (number + 1) % FRAMES;
		const struct frame *frame = bpf_map_lookup_elem(&frames, &number);
		/* The clone before shares its bytes with this packet: writing gives the packet new ones. */
		if (frame && bpf_skb_store_bytes(packet, 0, frame, FRAME_BYTES, 0) == 0 &&
		    bpf_clone_redirect(packet, packet->ifindex, BPF_F_INGRESS) == 0)
			packet->cb[TAKEN]++;
	}
	return 0;
}
