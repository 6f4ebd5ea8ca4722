// SPDX-License-Identifier: GPL-2.0
/* A method of the second driver that has attributes: bytes times a factor. */
#include "rdma_loop.h"

#include <sys/ioctl.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

enum {
	METHOD_SCALE = LOOP_METHOD_KICK + 1,
	FACTOR = 1 << 12,
	FROM,
	UNKNOWN,
	TO = FACTOR + 30,
};

struct command {
	struct ib_uverbs_ioctl_hdr hdr;
	struct ib_uverbs_attr attrs[3];
};

static const uint8_t from[16] = { 1, 2, 3, [14] = 127, 255 };

static int scale(struct loop *l, const struct ib_uverbs_attr *attrs, int count)
{
	struct command c = {
		.hdr = {
			.length = sizeof(c.hdr) + count * sizeof(*attrs),
			.object_id = UVERBS_OBJECT_DEVICE,
			.method_id = METHOD_SCALE,
			.num_attrs = count,
			.driver_id = LOOP_DRIVER_ID,
		},
	};

	memcpy(c.attrs, attrs, count * sizeof(*attrs));
	return ioctl(l->fd, RDMA_VERBS_IOCTL, &c) ? errno : 0;
}

static void expect_scaled(const uint8_t *to, uint8_t factor)
{
	for (int i = 0; i < 16; i++)
		REQUIRE_EQ(to[i], (uint8_t)(from[i] * factor));
}

void methods(void)
{
	uint8_t to[24] = { [16] = 0xee };
	const struct ib_uverbs_attr factor = { .attr_id = FACTOR, .len = 1, .data = 3 };
	const struct ib_uverbs_attr in = { .attr_id = FROM, .len = 16, .data = (uintptr_t)from };
	const struct ib_uverbs_attr out = { .attr_id = TO, .len = 16, .data = (uintptr_t)to };
	struct ib_uverbs_attr wrong;
	struct loop l;

	open_device(&l);
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ factor, in, out }, 3), 0);
	expect_scaled(to, 3);
	REQUIRE_EQ(to[16], 0xee);
	/* In any order, and without what need not be given. */
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ out, in }, 2), 0);
	expect_scaled(to, 2);

	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ factor, out }, 2), ENOENT);
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ factor, in }, 2), ENOENT);
	REQUIRE_ERRNO(scale(&l, NULL, 0), ENOENT);
	for (int length = 0; length < 24; length++) {
		wrong = in;
		wrong.len = length;
		REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ wrong, out }, 2),
			      length == 16 ? 0 : EINVAL);
	}
	wrong = in;
	wrong.data = 8;
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ wrong, out }, 2), EFAULT);
	wrong = out;
	wrong.data = 8;
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ in, wrong }, 2), EFAULT);
	wrong = factor;
	wrong.attr_id = UNKNOWN;
	wrong.flags = UVERBS_ATTR_F_MANDATORY;
	REQUIRE_ERRNO(scale(&l, (struct ib_uverbs_attr[]){ wrong, in, out }, 3),
		      EPROTONOSUPPORT);
	close_device(&l);
}
