package metadata

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// FuzzRequest looks for requests that make the service panic, answer in no HTTP,
// or answer a client without the token.
func FuzzRequest(f *testing.F) {
	s, err := newService(testService())
	if err != nil {
		f.Fatal(err)
	}
	// A token that is found in no other way than by knowing it, and short
	// enough that the fuzzer keeps it.
	s.token = "t0ken"
	for _, path := range []string{"/pod/uuid", "/pod/manifest", "/apps/db/annotations", "/apps/x/image/id"} {
		f.Add("GET /t0ken/acMetadata/v1" + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	f.Add("POST /t0ken/acMetadata/v1/pod/hmac/sign HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\ncontent=a")
	f.Add("POST /t0ken/acMetadata/v1/pod/hmac/verify HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 26\r\n\r\ncontent=a&uuid=&signature=")
	f.Add("HEAD http://h/%740ken/acMetadata/v1/pod/uuid?q HTTP/1.1\nHost: a\n A: b\n\n")
	f.Fuzz(func(t *testing.T, request string) {
		status, _ := roundTrip(t, s, request)
		if status == http.StatusOK && !strings.Contains(request, "ken") && !strings.Contains(request, "%") {
			t.Errorf("served without the token: %q", request)
		}
		if n := s.forms.Load(); n != 0 {
			t.Errorf("%d bytes of forms left", n)
		}
	})
}
