# docker build -t coop-cmp . && docker run --rm -v "$PWD/output:/coop-cmp/output" coop-cmp
FROM python:3.12-slim
WORKDIR /coop-cmp
COPY . .
RUN pip install --no-cache-dir -r requirements.txt
# The README's first command; give another one after the image's name.
CMD ["bash", "scripts/main.sh", "glyphs", "1"]
