// SPDX-License-Identifier: GPL-2.0
/*
 * PCI functions, for the crate kernel_ext.
 */

#include <linux/interrupt.h>
#include <linux/pci.h>

#include "helpers.h"

/* Whatever the cookie is, it begins with the function that is called with it. */
static irqreturn_t call(int irq, void *cookie)
{
	void (**handle)(void *cookie) = cookie;

	(*handle)(cookie);
	return IRQ_HANDLED;
}

/* Without IRQF_SHARED: nobody else gets the interrupt. */
int ferrule_helper_request_own_irq(unsigned int irq, const char *name, void *cookie)
{
	return request_irq(irq, call, 0, name, cookie);
}
