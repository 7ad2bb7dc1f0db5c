// SPDX-License-Identifier: BSD-3-Clause

/* A module that brings the kernel down when it is loaded: for the test of what guest run says then. */
#include <linux/bug.h>
#include <linux/init.h>
#include <linux/module.h>

static int __init oops_init(void)
{
	BUG();
	return 0;
}
module_init(oops_init);
MODULE_DESCRIPTION("a fault when it is loaded");
MODULE_LICENSE("Dual BSD/GPL");
