package translate

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSeccompProfilesBecomeSets(t *testing.T) {
	for _, test := range []struct{ profile, want string }{
		{
			`{"defaultAction":"SCMP_ACT_ERRNO","architectures":["SCMP_ARCH_X86_64"],"syscalls":[{"names":["read","write"],"action":"SCMP_ACT_ALLOW"}]}`,
			`{"name":"os/linux/seccomp-retain-set","value":{"errno":"EPERM","set":["read","write"]}}`,
		},
		{
			`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["chmod"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}`,
			`{"name":"os/linux/seccomp-remove-set","value":{"errno":"ENOSYS","set":["chmod"]}}`,
		},
		{`{"defaultAction":"SCMP_ACT_LOG"}`, `default action "SCMP_ACT_LOG"`},
		{`{"defaultAction":"SCMP_ACT_ERRNO"}`, "without system calls"},
		{`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["clone"],"action":"SCMP_ACT_ALLOW","args":[{"index":0}]}]}`, "conditions (clone)"},
		{`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["clone"],"action":"SCMP_ACT_KILL"}]}`, `action "SCMP_ACT_KILL"`},
		{`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["clone"],"action":"SCMP_ACT_ERRNO","errnoRet":99999}]}`, "error 99999"},
		{ // a rule with the default action and its error changes nothing
			`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"},{"names":["clone"],"action":"SCMP_ACT_ERRNO","errnoRet":1}]}`,
			`{"name":"os/linux/seccomp-retain-set","value":{"errno":"EPERM","set":["read"]}}`,
		},
		{
			`{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"},{"names":["clone3"],"action":"SCMP_ACT_ERRNO","errnoRet":38}]}`,
			"more than one error (1 and 38)",
		},
		{
			`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["chmod"],"action":"SCMP_ACT_ERRNO","errnoRet":38},{"names":["chown"],"action":"SCMP_ACT_ERRNO"}]}`,
			"more than one error (1 and 38)",
		},
		{`[]`, "seccomp profile"},
	} {
		got, err := seccompIsolator([]byte(test.profile))
		text, jsonErr := json.Marshal(got)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		if err != nil {
			text = []byte(err.Error())
		}
		if !strings.Contains(string(text), test.want) {
			t.Errorf("%s: %s, want %s", test.profile, text, test.want)
		}
	}
}
