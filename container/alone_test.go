package container

import (
	"testing"

	"github.com/moby/sys/mountinfo"

	"kurma.io/stager/spec"
)

func TestMountsThatShowProcessesOfOthers(t *testing.T) {
	all := []*mountinfo.Info{
		{Mountpoint: "/", FSType: "ext4"},
		{Mountpoint: "/proc", FSType: "proc"},
		{Mountpoint: "/proc/sys/fs/x", FSType: "tmpfs"},
		{Mountpoint: "/volumes/host", FSType: "ext4"},
		{Mountpoint: "/volumes/host/proc", FSType: "proc"},
		{Mountpoint: "/volumes/proc", FSType: "proc"},
		{Mountpoint: "/volumes/hidden", FSType: "proc"},
		{Mountpoint: "/volumes/hidden", FSType: "tmpfs"},
	}
	for _, tt := range []struct {
		source    string
		recursive bool
		want      bool
	}{
		{"/volumes/proc", false, true},
		{"/volumes/proc/1/root", false, true},
		{"/volumes/process", true, false},
		{"/volumes/host", true, true},
		{"/volumes/host", false, false},
		{"/volumes/host/var", true, false},
		{"/volumes/hidden", true, false},
		{"/proc/sys/fs/x", true, false},
		{"/", true, true},
	} {
		if got := showProcesses([]spec.Mount{{Source: tt.source, Recursive: tt.recursive}}, all); got != tt.want {
			t.Errorf("%s, recursive %t: %t", tt.source, tt.recursive, got)
		}
	}
}
