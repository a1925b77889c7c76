package metadata

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"net/url"
	"strings"
)

// identity signs for a pod. Its key is made with it, is in no answer, and ends
// with the pod; so a signature is valid in its own pod only.
type identity struct {
	uuid string
	key  [sha512.Size]byte // random; RFC 2104 advises the hash's length
}

func newIdentity(uuid string) *identity {
	id := &identity{uuid: uuid}
	_, _ = rand.Read(id.key[:]) // never fails (crypto/rand)
	return id
}

func (id *identity) mac(content string) []byte {
	h := hmac.New(sha512.New, id.key[:])
	h.Write([]byte(content))
	return h.Sum(nil)
}

// sign answers with the base64 HMAC-SHA512 of the field content.
func (id *identity) sign(f form) (answer, error) {
	content, err := f.field("content")
	if err != nil {
		return answer{}, err
	}
	signature := base64.StdEncoding.EncodeToString(id.mac(content))
	return answer{status: statusOK, contentType: textType, body: []byte(signature)}, nil
}

// verify answers 200 if the field signature is this pod's signature of content and
// uuid is this pod's, otherwise 403.
func (id *identity) verify(f form) (answer, error) {
	var values [3]string
	for i, name := range []string{"content", "uuid", "signature"} {
		var err error
		if values[i], err = f.field(name); err != nil {
			return answer{}, err
		}
	}
	content, uuid, signature := values[0], values[1], values[2]
	// An unescaped "+" of base64 arrives as a space, which base64 does not have.
	mac, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(signature, " ", "+"))
	if err != nil || !strings.EqualFold(uuid, id.uuid) || !hmac.Equal(mac, id.mac(content)) {
		return answer{}, refusal{status: statusForbidden, text: "not a signature of this content by that pod"}
	}
	return answer{status: statusOK, contentType: textType}, nil
}

// form is the body of a POST, application/x-www-form-urlencoded, without the fields that nobody reads.
type form map[string][]string

// parseForm takes no memory for each field, unlike url.ParseQuery: an app chooses how many there are.
func parseForm(body string) (form, error) {
	f := form{"content": nil, "uuid": nil, "signature": nil}
	for pair := range strings.SplitSeq(body, "&") {
		escapedName, escaped, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(escapedName)
		value, valueErr := url.QueryUnescape(escaped)
		if err != nil || valueErr != nil {
			return nil, refusal{status: statusBadRequest, text: "malformed form"}
		}
		if values, ok := f[name]; ok && len(values) < 2 {
			f[name] = append(values, value)
		}
	}
	return f, nil
}

// field returns the only value of a field, which may be empty.
func (f form) field(name string) (string, error) {
	if values := f[name]; len(values) == 1 {
		return values[0], nil
	}
	return "", refusal{status: statusBadRequest, text: "the form must have the field " + name + " once"}
}
