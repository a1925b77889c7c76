package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
)

// thisMachine finds out what the isolators need to know. What cannot be found
// out counts as absent.
func thisMachine() machine {
	enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	_, selinux := os.Stat("/sys/fs/selinux/enforce")
	m := machine{AppArmor: bytes.HasPrefix(enabled, []byte("Y")), SELinux: selinux == nil, MinOOMScoreAdj: -1000}
	own, err := capability.NewPid2(0)
	if err != nil || own.Load() != nil {
		return m
	}
	for _, c := range capability.ListKnown() {
		if own.Get(capability.PERMITTED, c) && own.Get(capability.BOUNDING, c) {
			m.Capabilities = append(m.Capabilities, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	if !own.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE) {
		text, _ := os.ReadFile("/proc/self/oom_score_adj")
		m.MinOOMScoreAdj, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	return m
}
