package plan

import (
	"strings"
	"testing"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

func TestSeccompProfilesAreChecked(t *testing.T) {
	allow := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [`
	for text, refused := range map[string]string{
		allow + `{"names": ["x"], "action": "SCMP_ACT_LOG", "args": [{"index": 5, "op": "SCMP_CMP_EQ"}]}]}`: "",
		`{}`: `defaultAction: "": must be one of`,
		allow + `{"names": ["x"], "action": "SCMP_ACT_NOTIFY"}]}`:                                      `syscalls[0].action: "SCMP_ACT_NOTIFY"`,
		allow + `{"action": "SCMP_ACT_ERRNO", "errnoRet": 4096}]}`:                                     "error 4096",
		allow + `{"action": "SCMP_ACT_ALLOW"}, {"action": "SCMP_ACT_ERRNO", "args": [{"op": "=="}]}]}`: `syscalls[1].args: op "=="`,
		allow + `{"action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "op": "SCMP_CMP_EQ"}]}]}`:          "index 6",
		`[]`: "cannot unmarshal array",
	} {
		app := withMounts(nil, nil)
		app.Runtime.Annotations = types.Annotations{{Name: names.SeccompProfileAnnotation, Value: text}}
		got, err := (Rows{}).planApp(app, defaultConfig(), able, podIsolators{}, nil)
		if refused == "" {
			if f := got.Spec.Process.Seccomp; err != nil || f.Kind != spec.SeccompProfile || f.Profile != text {
				t.Errorf("%+v, %v", got.Spec.Process.Seccomp, err)
			}
			forbids := defaultConfig()
			forbids.Forbid = []Power{PowerSeccomp}
			if _, err := (Rows{}).planApp(app, forbids, able, podIsolators{}, nil); err == nil || !strings.Contains(err.Error(), "forbid") {
				t.Errorf("forbidden: %v", err)
			}
		} else if err == nil || !strings.Contains(err.Error(), refused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, refused)
		}
	}
}
