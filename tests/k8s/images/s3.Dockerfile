# A real S3 server for tests. The context is made by build.sh.
ARG BASE
FROM $BASE
COPY versitygw /usr/local/bin/versitygw
ENV HOME=/tmp
USER 10001:10001
EXPOSE 7070
ENTRYPOINT ["/usr/local/bin/versitygw"]
