package metadata

import (
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
)

// Every pod has its own UUID and its own token in the service's URL, which commands of run have.
func TestEveryPodHasAUUIDOfItsOwn(t *testing.T) {
	clause.Covers(t, "C-ID-01", "C-ID-02", "C-MDS-01", "C-ENV-03")
	canonical := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 50 {
		server := start(t, plan.Metadata{UUID: plan.PodUUID("0::/user.slice\n")})
		url := server.URL()
		if env := plan.WithMetadata(new(plan.Pod).CommandEnv("app"), url); !slices.Contains(env, "AC_METADATA_URL="+url) {
			t.Errorf("environment of run %q", env)
		}
		answer, _ := ask(t, "GET", url+"/acMetadata/v1/pod/uuid", "", "")
		id := answer.Body
		token := path.Base(url)
		if bits, err := hex.DecodeString(token); err != nil || 8*len(bits) < 128 {
			t.Errorf("token %q, %v", token, err)
		}
		if !canonical.MatchString(id) || seen[id] || seen[token] || strings.Contains(url, id) {
			t.Errorf("UUID %s, URL %s", id, url)
		}
		seen[id], seen[token] = true, true
	}
}
