package podplan

import (
	"fmt"
	"strings"
	"testing"
)

func TestVolumesThatOthersReachAreWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		name, user, volume, point string
		reachable, warns          bool
	}{
		{"user 0", "0", "", "", true, true},
		{"0 in other words", "000", "", "", true, true},
		{"root", "root", "", "", true, true},
		{"a name", "www", "", "", true, true},
		{"a file's owner", "/etc/passwd", "", "", true, true},
		{"another user", "7", "", "", true, false},
		{"closed to others", "0", "", "", false, false},
		{"a read-only volume", "0", `,"readOnly":true`, "", true, false},
		{"a read-only mount point", "0", "", `,"readOnly":true`, true, false},
	} {
		p := newPlanner()
		p.Reachable = func(path string) bool { return tt.reachable && path == "/srv/data" }
		for kind, mounts := range map[string]string{"by path": `,"mounts":[{"volume":"v","path":"/data"},{"volume":"v","path":"/again"}]`, "by name": ""} {
			name := "v"
			if mounts != "" {
				name = "other"
			}
			document := fmt.Sprintf(`{"acKind":"PodManifest","acVersion":"0.8.11","apps":[{"name":"a","image":{"id":%q},"app":{"exec":["/x"],"user":%q,"group":"0",
				"mountPoints":[{"name":%q,"path":"/data"%s}]}%s}],"volumes":[{"name":"v","kind":"host","source":"/srv/data"%s}]}`,
				imageID(1), tt.user, name, tt.point, mounts, tt.volume)
			_, warnings, err := p.FromManifest("p.json", []byte(document), Options{})
			text := strings.Join(warnings, "\n")
			who := map[bool]string{true: `app "a" (user 0) `, false: fmt.Sprintf(`app "a" (user %q, possibly user 0) `, tt.user)}[isRoot(tt.user)]
			if err != nil || strings.Contains(text, who+`can write set-user-ID programs to "/srv/data"`) != tt.warns || tt.warns && len(warnings) != 1 {
				t.Errorf("%s, %s: %v, warnings %q", tt.name, kind, err, warnings)
			}
		}
	}
}
