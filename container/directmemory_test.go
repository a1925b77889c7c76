package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the child of a fork does not get is nothing of the program itself, and not the forking thread's stack.
func TestSpareMemoryIsWhatTheProgramHasMapped(t *testing.T) {
	const stack = 0x7f6d9bff2000
	const program = `00400000-00401000 r--p 00000000 00:27 64   /a stager
00ccb000-00cf6000 rw-p 008ca000 00:27 64                     /a stager
00cf6000-02d37000 rw-p 00000000 00:00 0
3561b000-3563d000 rw-p 00000000 00:00 0                      [heap]
`
	const mapped = `26020c000000-26020c800000 ---p 00000000 00:00 0
26020d000000-26020d400000 rw-p 00000000 00:00 0              [anon: Go: heap]
7f6d9bff1000-7f6d9c7f1000 rw-p 00000000 00:00 0
`
	const kernel = `7ffd4a05d000-7ffd4a07e000 rw-p 00000000 00:00 0      [stack]
7ffd4a0b8000-7ffd4a0ba000 r-xp 00000000 00:00 0              [vdso]
`
	type result struct {
		Spare []memoryRange
		Own   memoryRange
	}
	for name, test := range map[string]struct {
		maps string
		want result
	}{
		"a static program": {program + mapped + kernel, result{
			Spare: []memoryRange{{0x26020c000000, 0x26020c800000}, {0x26020d000000, 0x26020d400000}},
			Own:   memoryRange{0x7f6d9bff1000, 0x7f6d9c7f1000},
		}},
		"shared libraries": {program + mapped + "7f6e00000000-7f6e00001000 r--p 00000000 00:27 65 /lib/libc.so.6\n", result{}},
		"not understood":   {program + mapped + "maps\n", result{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got result
			got.Spare, got.Own = spareMemory(test.maps, stack)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(memoryRange{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
