// A registry that answers the referrers API (OCI Distribution 1.1), in memory, at the address that it is given.
package main

import (
	"log"
	"net/http"
	"os"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelabs.dev/go/oci/ociregistry/ociserver"
)

func main() {
	registry := ociserver.New(ocimem.New(), nil)
	log.Fatal(http.ListenAndServe(os.Args[1], http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		log.Print(request.Method, " ", request.URL)
		registry.ServeHTTP(response, request)
	})))
}
