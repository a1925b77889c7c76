package tests

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// The test starts the stager with invalid manifests: each time the stager prints one line that
// names what is wrong, exits with 1, and leaves nothing.
func TestBadManifestsAreRefused(t *testing.T) {
	t.Parallel()
	id := suite.ids["busybox"]
	edit := func(change func(d document)) any {
		d := documentOf(podOf(shell("a", "true")), "/"+id)
		text, _ := json.Marshal(d) // plain data
		var plain map[string]any
		_ = json.Unmarshal(text, &plain) // its own text
		change(plain)
		return plain
	}
	config := func(key string, value any) any {
		return edit(func(d document) { d["stagerConfig"] = map[string]any{key: value} })
	}
	podApp := func(d document) map[string]any {
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
		{"no pod", edit(func(d document) { delete(d, "pod") }), []string{"pod"}},
		{"no apps", edit(func(d document) { d["pod"].(map[string]any)["apps"] = []any{} }), []string{"apps"}},
		{"app nowhere", edit(func(d document) { delete(podApp(d), "app") }), []string{"pod.apps[0].app"}},
		{"image not in images", edit(func(d document) { d["images"] = map[string]any{} }), []string{"images", id[:20]}},
		{"no order", edit(func(d document) { d["appImageOrder"] = map[string]any{} }), []string{"appImageOrder.a"}},
		{"empty order", edit(func(d document) { d["appImageOrder"] = map[string]any{"a": []any{}} }), []string{"appImageOrder.a"}},
		{"order of the wrong type", edit(func(d document) { d["appImageOrder"] = map[string]any{"a": 7} }), []string{"appImageOrder", "7"}},
		{"bad app name", edit(func(d document) { podApp(d)["name"] = "Über" }), []string{"name", "Über"}},
		{"long app name", edit(func(d document) {
			podApp(d)["name"] = long
			d["appImageOrder"] = map[string]any{long: []any{id}}
		}), nil},
		{"no exec", edit(func(d document) { podApp(d)["app"].(map[string]any)["exec"] = []any{} }), []string{"exec"}},
		{"no user", edit(func(d document) { delete(podApp(d)["app"].(map[string]any), "user") }), []string{"user"}},
		{"relative folder", edit(func(d document) { podApp(d)["app"].(map[string]any)["workingDirectory"] = "x/y" }), []string{"workingDirectory", "x/y"}},
		{"graphStorage", config("graphStorage", "floppy"), []string{"graphStorage", "floppy", "overlay"}},
		{"gracePeriod", config("gracePeriod", "-1s"), []string{"gracePeriod", "-1s"}},
		{"exitPolicy", config("exitPolicy", 3), []string{"exitPolicy", "3"}},
		{"restart", config("restart", "maybe"), []string{"restart", "maybe"}},
		{"log.maxFiles", config("log", map[string]any{"maxFiles": 0}), []string{"log.maxFiles", "0"}},
		{"unknown namespace", edit(func(d document) {
			d["pod"].(map[string]any)["isolators"] = []any{isolator("os/linux/namespaces", map[string]string{"time": "host"})}
		}), []string{"os/linux/namespaces", "time"}},
		{"no such volume", edit(func(d document) {
			podApp(d)["mounts"] = []any{mountDoc{"nowhere", "/data"}}
		}), []string{"nowhere"}},
		{"volume without source", edit(func(d document) {
			d["pod"].(map[string]any)["volumes"] = []any{volumeDoc{Name: "gone", Kind: "host", Source: "/x"}}
			podApp(d)["mounts"] = []any{mountDoc{"gone", "/data"}}
		}), []string{"gone", "/volumes/gone"}},
		{"nested targets", edit(func(d document) {
			d["pod"].(map[string]any)["volumes"] = []any{volumeDoc{Name: "one", Kind: "empty"}, volumeDoc{Name: "two", Kind: "empty"}}
			podApp(d)["mounts"] = []any{mountDoc{"one", "/data"}, mountDoc{"two", "/data/in/it"}}
		}), []string{`"/data"`, `"/data/in/it"`}},
		{"volume over /proc", edit(func(d document) {
			d["pod"].(map[string]any)["volumes"] = []any{volumeDoc{Name: "one", Kind: "empty"}}
			podApp(d)["mounts"] = []any{mountDoc{"one", "/x/../proc"}}
		}), []string{"/proc"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newMachine(t)
			d := b.direct(tt.manifest, b.busyboxLayer())
			d.start(nil, nil)
			if code := d.wait(); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			messages := strings.TrimSpace(d.messages())
			errors := 0
			for line := range strings.Lines(messages) {
				if strings.HasPrefix(line, filepath.Base(suite.stager.Exec[0])+": ") {
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
	b := newMachine(t)
	d := b.direct(documentOf(podOf(shell("a", "true")), b.busyboxLayer()))
	d.start(nil, nil)
	if code := d.wait(); code != 1 || !strings.Contains(d.messages(), suite.ids["busybox"][:20]) || !strings.Contains(d.messages(), `"a"`) {
		t.Errorf("exit status %d, it says:\n%s", code, d.messages())
	}
}

// The test starts pods with every form of an empty stagerConfig.
func TestEveryEmptyStagerConfigIsAccepted(t *testing.T) {
	t.Parallel()
	for _, form := range []any{"absent", nil, map[string]any{}} {
		b := newMachine(t)
		doc := documentOf(podOf(shell("a", "echo runs; exec sleep 1000")), b.busyboxLayer())
		delete(doc, "name") // the specification's example has none
		doc["stagerConfig"] = form
		if form == "absent" {
			delete(doc, "stagerConfig")
		}
		d := b.direct(doc, b.busyboxLayer())
		d.startReady()
		d.sees("a", "stdout F runs")
	}
}
