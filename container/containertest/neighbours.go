package containertest

import (
	"strings"

	"kurma.io/stager/spec"
)

// What an app does to its own surroundings, its neighbours do not see.
func neighbourCases() []testCase {
	return []testCase{
		{"an app with CAP_SYS_ADMIN changes no mask of another app", remountMasks},
	}
}

// remountMasks has an app make the file systems writable that hide folders, and fill them. Files can be hidden by the
// machine's own null device, so the app leaves those alone.
func remountMasks(b *bench) {
	const paths = "/proc/acpi /proc/asound /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
	const list = "for p in " + paths + "; do ls -A $p 2>/dev/null; done; true"
	before := b.run(b.sh(list))
	s := b.sh("for p in " + paths + "; do /bin/busybox mount -o remount,rw none $p && echo writable; echo x >$p/left; done 2>/dev/null; true")
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")
	if r := b.run(s); r.status != 0 || !strings.Contains(r.text, "writable") {
		b.t.Errorf("the app ends with status %#x and writes %q", r.status, r.text)
	}
	b.wantRun(b.sh(list), before.text)
}
