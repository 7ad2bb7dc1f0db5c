// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

/* Memory regions. */

#include <linux/preempt.h>
#include <linux/workqueue.h>

#include "siw.h"
#include "siw_mem.h"

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
	queue_work(siw_cm_wq, &mem->freeing);
}
