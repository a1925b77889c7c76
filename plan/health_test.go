package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// healthAnnotations makes annotations of pairs: a name without its beginning, and a value.
func healthAnnotations(pairs ...string) types.Annotations {
	var all types.Annotations
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, types.Annotation{Name: types.ACIdentifier("kurma.io/stager/health-" + pairs[i]), Value: pairs[i+1]})
	}
	return all
}

func checkOf(image, own types.Annotations) (*spec.HealthCheck, error) {
	return healthCheck(manifest.App{
		Image:   &manifest.Image{ImageManifest: &schema.ImageManifest{Annotations: image}},
		Runtime: schema.RuntimeApp{Annotations: own},
		App: &types.App{
			User: "postgres", Group: "20", SupplementaryGIDs: []int{21}, WorkingDirectory: "/d",
		},
	}, []string{"A=1", "PATH=/p"})
}

func TestAnnotationsSayHowHealthIsChecked(t *testing.T) {
	want := func(change func(c *spec.HealthCheck)) *spec.HealthCheck {
		c := &spec.HealthCheck{
			Command: spec.Command{
				Args: []string{"/bin/sh", "-c", "test -e /up"}, Env: []string{"A=1", "PATH=/p"},
				User: "postgres", Group: "20", SupplementaryGID: []int{21}, Dir: "/d",
			},
			Interval: 30 * time.Second, Timeout: 30 * time.Second, Retries: 3,
		}
		change(c)
		return c
	}
	cmd := healthAnnotations("cmd", "test -e /up")
	tests := []struct {
		name       string
		image, own types.Annotations
		want       *spec.HealthCheck
	}{
		{"none", nil, nil, nil},
		{"own", nil, cmd, want(func(*spec.HealthCheck) {})},
		{"image", cmd, nil, want(func(*spec.HealthCheck) {})},
		{"words", nil, healthAnnotations("cmd", `["/check", "a b"]`), want(func(c *spec.HealthCheck) { c.Command.Args = []string{"/check", "a b"} })},
		{"image's is not made", cmd, healthAnnotations("cmd", "none", "retries", "1"), nil},
		{"image's not made, own", healthAnnotations("cmd", "none"), cmd, want(func(*spec.HealthCheck) {})},
		{
			"all", nil, append(healthAnnotations("interval", "1m30s", "timeout", "1ms", "retries", "1", "start-period", "0s",
				"on-failure", "restart", "ready", "true"), cmd...),
			want(func(c *spec.HealthCheck) {
				c.Interval, c.Timeout, c.Retries, c.Restart, c.Ready = 90*time.Second, time.Millisecond, 1, true, true
			}),
		},
		{
			"each overrides the image's", append(healthAnnotations("interval", "5s", "timeout", "6s", "on-failure", "restart"), cmd...),
			healthAnnotations("interval", "7s", "on-failure", "none"),
			want(func(c *spec.HealthCheck) { c.Interval, c.Timeout = 7*time.Second, 6*time.Second }),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := checkOf(test.image, test.own)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
}

func TestWrongHealthChecksAreRefused(t *testing.T) {
	cmd := healthAnnotations("cmd", "true")
	for _, test := range []struct{ setting, value, want string }{
		{"cmd", "", "must be a command"},
		{"cmd", " ", "must be a command"},
		{"cmd", "[]", "must be a command"},
		{"cmd", `["x"`, "must be a command"},
		{"cmd", `[""]`, "must be a command"},
		{"cmd", `["x", 1]`, "must be a command"},
		{"cmd", "a\x00b", "must be a command"},
		{"cmd", `["a\u0000"]`, "must be a command"},
		{"interval", "999ms", "at least 1s"},
		{"interval", "30", "at least 1s"},
		{"timeout", "0s", "longer than 0"},
		{"timeout", "-1s", "longer than 0"},
		{"retries", "0", "at least 1"},
		{"retries", "x\ny", "at least 1"},
		{"retries", "-1", "at least 1"},
		{"start-period", "-1s", "not negative"},
		{"on-failure", "kill", `"restart"`},
		{"ready", "yes", `"true"`},
	} {
		if _, err := checkOf(nil, append(healthAnnotations(test.setting, test.value), cmd...)); err == nil ||
			!strings.HasPrefix(err.Error(), "annotation kurma.io/stager/health-"+test.setting+": ") ||
			!strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %q: %v", test.setting, test.value, err)
		}
		if err := CheckHealth("kurma.io/stager/health-"+test.setting, test.value); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s %q: %v", test.setting, test.value, err)
		}
	}
	if _, err := checkOf(nil, healthAnnotations("retries", "1")); err == nil || !strings.Contains(err.Error(), "health-retries: the app has no "+names.HealthCommandAnnotation) {
		t.Errorf("a setting without a command: %v", err)
	}
	if err := CheckHealth(names.HealthReadyAnnotation, "true"); err != nil {
		t.Error(err)
	}
}
