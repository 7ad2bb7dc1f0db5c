// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* Memory regions. */

#include <linux/preempt.h>
#include <linux/workqueue.h>

#include "siw.h"
#include "siw_mem.h"

/* Unpinning a large region takes a while. Nobody waits for it here, neither connections nor other regions. */
static struct workqueue_struct *siw_7306_freeing;

int siw_7306_mem_init(void)
{
	siw_7306_freeing = alloc_workqueue("siw_7306_mem", WQ_UNBOUND, 0);
	return siw_7306_freeing ? 0 : -ENOMEM;
}

void siw_7306_mem_exit(void)
{
	destroy_workqueue(siw_7306_freeing);
}

/* siw_7306_mem_wait waits until all regions that nobody uses any more are free. */
void siw_7306_mem_wait(void)
{
	flush_workqueue(siw_7306_freeing);
}

static void siw_7306_free_later(struct work_struct *work)
{
	siw_free_mem(&container_of(work, struct siw_mem, freeing)->ref);
}

/* siw_7306_free_mem frees a region that its last user has let go of, later if that user cannot sleep. */
void siw_7306_free_mem(struct kref *ref)
{
	struct siw_mem *mem = container_of(ref, struct siw_mem, ref);

	if (preemptible()) {
		siw_free_mem(ref);
		return;
	}
	INIT_WORK(&mem->freeing, siw_7306_free_later);
	queue_work(siw_7306_freeing, &mem->freeing);
}
