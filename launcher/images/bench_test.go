package images

import (
	"bytes"
	"errors"
	"math/rand"
	"os"
	"testing"

	"kurma.io/stager/signing"
)

// BenchmarkTrust checks a stager image of 8 MB, as each launch does: with an unbroken seal, and
// by reading the signed file again, which a broken seal asks for.
func BenchmarkTrust(b *testing.B) {
	s := Open(b.TempDir() + "/images")
	key, err := signing.NewKey("test")
	if err != nil {
		b.Fatal(err)
	}
	content := make([]byte, 8<<20)
	rand.New(rand.NewSource(1)).Read(content)
	t := &testing.T{}
	data := archive(t, `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/stager","app":{"exec":["/x"],"user":"0","group":"0"}}`,
		dir("rootfs"), regular("rootfs/x", string(content)))
	var sig, public bytes.Buffer
	path, ringFile := b.TempDir()+"/image.aci", b.TempDir()+"/key.asc"
	if err := errors.Join(signing.Sign(&sig, bytes.NewReader(data), key), key.WritePublic(&public),
		os.WriteFile(path, data, 0o600), os.WriteFile(path+".asc", sig.Bytes(), 0o600), os.WriteFile(ringFile, public.Bytes(), 0o600)); err != nil {
		b.Fatal(err)
	}
	ring, err := signing.ReadKeyRing(ringFile)
	if err != nil {
		b.Fatal(err)
	}
	image, err := s.Import(b.Context(), path, ring, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, broken := range map[string]bool{"sealed": false, "read again": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if broken {
					image.Record.Head = nil
				}
				if err := s.TrustStager(image, ring); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
