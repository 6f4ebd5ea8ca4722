// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Address handles: the kernel keeps the address, requests name its number. */

#include <config.h>

#include <stdlib.h>

#include "abi.h"
#include "ferrule.h"

struct ibv_ah *ferrule_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct create_ah_resp resp = {};
	struct ferrule_ah *ah;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	if (ibv_cmd_create_ah(pd, &ah->ibv_ah, attr, &resp.core,
			      sizeof(resp))) {
		free(ah);
		return NULL;
	}
	ah->number = resp.drv.ah;

	return &ah->ibv_ah;
}

int ferrule_destroy_ah(struct ibv_ah *ibah)
{
	int ret;

	ret = ibv_cmd_destroy_ah(ibah);
	if (ret)
		return ret;

	free(to_fah(ibah));
	return 0;
}
