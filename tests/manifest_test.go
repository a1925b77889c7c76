package tests

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
)

// The test starts the stager with invalid manifests: each time the stager prints one line that
// names what is wrong, exits with 1, and leaves nothing.
func TestBadManifestsAreRefused(t *testing.T) {
	t.Parallel()
	id := suite.IDs["busybox"]
	edit := func(change func(d harness.Document)) any {
		d := harness.DocumentOf(harness.PodOf(suite.Shell("a", "true")), "/"+id)
		text, _ := json.Marshal(d) // plain data
		var plain map[string]any
		_ = json.Unmarshal(text, &plain) // its own text
		change(plain)
		return plain
	}
	config := func(key string, value any) any {
		return edit(func(d harness.Document) { d["stagerConfig"] = map[string]any{key: value} })
	}
	podApp := func(d harness.Document) map[string]any {
		return d["pod"].(map[string]any)["apps"].([]any)[0].(map[string]any)
	}
	long := strings.Repeat("x", 255)
	tests := []struct {
		name     string
		manifest any
		words    []string
	}{
		{"empty", "", []string{"manifest"}},
		{"cut", `{"pod": {"acVersion"`, []string{"manifest"}},
		{"garbage", "\x00\xff\x1f garbage \n\n\n", []string{"manifest"}},
		{"a list", "[]", []string{"manifest"}},
		{"no pod", edit(func(d harness.Document) { delete(d, "pod") }), []string{"pod"}},
		{"no apps", edit(func(d harness.Document) { d["pod"].(map[string]any)["apps"] = []any{} }), []string{"apps"}},
		{"app nowhere", edit(func(d harness.Document) { delete(podApp(d), "app") }), []string{"pod.apps[0].app"}},
		{"image not in images", edit(func(d harness.Document) { d["images"] = map[string]any{} }), []string{"images", id[:20]}},
		{"no order", edit(func(d harness.Document) { d["appImageOrder"] = map[string]any{} }), []string{"appImageOrder.a"}},
		{"empty order", edit(func(d harness.Document) { d["appImageOrder"] = map[string]any{"a": []any{}} }), []string{"appImageOrder.a"}},
		{"order of the wrong type", edit(func(d harness.Document) { d["appImageOrder"] = map[string]any{"a": 7} }), []string{"appImageOrder", "7"}},
		{"bad app name", edit(func(d harness.Document) { podApp(d)["name"] = "Über" }), []string{"name", "Über"}},
		{"long app name", edit(func(d harness.Document) {
			podApp(d)["name"] = long
			d["appImageOrder"] = map[string]any{long: []any{id}}
		}), nil},
		{"no exec", edit(func(d harness.Document) { podApp(d)["app"].(map[string]any)["exec"] = []any{} }), []string{"exec"}},
		{"no user", edit(func(d harness.Document) { delete(podApp(d)["app"].(map[string]any), "user") }), []string{"user"}},
		{"relative folder", edit(func(d harness.Document) { podApp(d)["app"].(map[string]any)["workingDirectory"] = "x/y" }), []string{"workingDirectory", "x/y"}},
		{"graphStorage", config("graphStorage", "floppy"), []string{"graphStorage", "floppy", "overlay"}},
		{"gracePeriod", config("gracePeriod", "-1s"), []string{"gracePeriod", "-1s"}},
		{"exitPolicy", config("exitPolicy", 3), []string{"exitPolicy", "3"}},
		{"restart", config("restart", "maybe"), []string{"restart", "maybe"}},
		{"log.maxFiles", config("log", map[string]any{"maxFiles": 0}), []string{"log.maxFiles", "0"}},
		{"unknown namespace", edit(func(d harness.Document) {
			d["pod"].(map[string]any)["isolators"] = []any{harness.Isolator("os/linux/namespaces", map[string]string{"time": "host"})}
		}), []string{"os/linux/namespaces", "time"}},
		{"no such volume", edit(func(d harness.Document) {
			podApp(d)["mounts"] = []any{harness.MountDoc{Volume: "nowhere", Path: "/data"}}
		}), []string{"nowhere"}},
		{"volume without source", edit(func(d harness.Document) {
			d["pod"].(map[string]any)["volumes"] = []any{harness.VolumeDoc{Name: "gone", Kind: "host", Source: "/x"}}
			podApp(d)["mounts"] = []any{harness.MountDoc{Volume: "gone", Path: "/data"}}
		}), []string{"gone", "/volumes/gone"}},
		{"nested targets", edit(func(d harness.Document) {
			d["pod"].(map[string]any)["volumes"] = []any{harness.VolumeDoc{Name: "one", Kind: "empty"}, harness.VolumeDoc{Name: "two", Kind: "empty"}}
			podApp(d)["mounts"] = []any{harness.MountDoc{Volume: "one", Path: "/data"}, harness.MountDoc{Volume: "two", Path: "/data/in/it"}}
		}), []string{`"/data"`, `"/data/in/it"`}},
		{"volume over /proc", edit(func(d harness.Document) {
			d["pod"].(map[string]any)["volumes"] = []any{harness.VolumeDoc{Name: "one", Kind: "empty"}}
			podApp(d)["mounts"] = []any{harness.MountDoc{Volume: "one", Path: "/x/../proc"}}
		}), []string{"/proc"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			d := b.Direct(tt.manifest, b.BusyboxLayer())
			d.Start(nil, nil)
			if code := d.Wait(); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			messages := strings.TrimSpace(d.Messages())
			errors := 0
			for line := range strings.Lines(messages) {
				if strings.HasPrefix(line, filepath.Base(suite.Stager.Exec[0])+": ") {
					errors++
				}
			}
			if errors != 1 || strings.Contains(messages, "goroutine ") {
				t.Errorf("the messages, want one line with the error:\n%s", messages)
			}
			for _, word := range tt.words {
				if !strings.Contains(messages, word) {
					t.Errorf("no %q in\n%s", word, messages)
				}
			}
		})
	}
}

// The test names a layer that the daemon did not provide.
func TestAMissingLayerIsReported(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	d := b.Direct(harness.DocumentOf(harness.PodOf(suite.Shell("a", "true")), b.BusyboxLayer()))
	d.Start(nil, nil)
	if code := d.Wait(); code != 1 || !strings.Contains(d.Messages(), suite.IDs["busybox"][:20]) || !strings.Contains(d.Messages(), `"a"`) {
		t.Errorf("exit status %d, it says:\n%s", code, d.Messages())
	}
}

// The test starts pods with every form of an empty stagerConfig.
func TestEveryEmptyStagerConfigIsAccepted(t *testing.T) {
	t.Parallel()
	for _, form := range []any{"absent", nil, map[string]any{}} {
		b := suite.NewMachine(t)
		doc := harness.DocumentOf(harness.PodOf(suite.Shell("a", "echo runs; exec sleep 1000")), b.BusyboxLayer())
		delete(doc, "name") // the specification's example has none
		doc["stagerConfig"] = form
		if form == "absent" {
			delete(doc, "stagerConfig")
		}
		d := b.Direct(doc, b.BusyboxLayer())
		d.StartReady()
		d.Sees("a", "stdout F runs")
	}
}

// A daemon that passes no stagerConfig runs the stager with the configuration in its image.
func TestTheImageHasConfiguration(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	doc := harness.DocumentOf(harness.PodOf(suite.Shell("a", "exit 7")), b.BusyboxLayer())
	doc["stagerConfig"] = map[string]any{}
	d := b.Direct(doc, b.BusyboxLayer())
	file := filepath.Join(d.Plan.Root, names.ConfigFile)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(`{"exitPolicy": "all"}`), 0o644)); err != nil {
		t.Fatal(err)
	}
	d.Start(nil, nil)
	if code := d.Wait(); code != 7 {
		t.Errorf("exit status %d, want the app's\n%s", code, d.Messages())
	}
}
