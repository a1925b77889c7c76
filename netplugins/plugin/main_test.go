package plugin

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// pathPlugin answers its PATH.
type pathPlugin struct{}

func (pathPlugin) Setup(context.Context, []byte) error    { return nil }
func (pathPlugin) Del(context.Context, []byte, Pod) error { return nil }
func (pathPlugin) Add(context.Context, []byte, Pod) (*Result, error) {
	return &Result{DNS: &DNS{Domain: os.Getenv("PATH")}}, nil
}

func TestMain(m *testing.M) {
	if strings.HasSuffix(os.Args[0], "/add") {
		Main(pathPlugin{})
		return
	}
	os.Exit(m.Run())
}

// A daemon may execute a plugin with an empty environment.
func TestAPluginFindsItsProgramsWithoutPATH(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want string
	}{
		{"empty environment", []string{}, programs},
		{"empty PATH", []string{"PATH="}, programs},
		{"a PATH of the caller", []string{"PATH=/opt/bin"}, "/opt/bin"},
	} {
		cmd := exec.Command("/proc/self/exe", "/proc/self/ns/net", "uuid", "eth0")
		cmd.Args[0], cmd.Env, cmd.Stdin = "/opt/network/add", tt.env, strings.NewReader("{}")
		out, err := cmd.Output()
		var result Result
		if err != nil || json.Unmarshal(out, &result) != nil || result.DNS == nil || result.DNS.Domain != tt.want {
			t.Errorf("%s: %v, %s, want PATH %s", tt.name, err, out, tt.want)
		}
	}
}
