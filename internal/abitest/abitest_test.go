// SPDX-License-Identifier: BSD-3-Clause

package abitest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	const head, foot = "#ifdef GOVERBS_SYSTEM_HEADERS\n#include <x.h>\n#else\n", "\n#endif // GOVERBS_SYSTEM_HEADERS\n"
	d, err := parse(head + `
#include <stdint.h>
#define X_RANGE 0x3ff
#define __X ((void *)1)
struct later;

enum x {
	X_A = 1,
	X_B = -2, // a comment
};

struct s {
	uint64_t a;
	char name[64];
	union {
		uint32_t b;
		struct {
			struct s *c;
			int (*call)(struct s *s, int n);
		} d;
	};
	union {
		int e;
	} f;
	void (*unused[3])(void);
};
` + foot)
	require.NoError(t, err)
	require.Equal(t, []string{"X_RANGE", "X_A", "X_B"}, d.numbers)
	require.Equal(t, []string{"struct s"}, d.types)
	var paths []string
	for _, f := range d.fields {
		require.Equal(t, "struct s", f.typ)
		paths = append(paths, f.path)
	}
	require.Equal(t, []string{"a", "name", "b", "d.c", "d.call", "f.e", "unused"}, paths)

	for _, bad := range []string{"int f(void);", "enum x {\n\tX_A,\n};", "struct s {\n\tint a, b\n};", "}"} {
		_, err := parse(head + bad + foot)
		require.Error(t, err, bad)
	}
	_, err = parse("struct s {\n\tint a;\n};\n")
	require.Error(t, err)
}
